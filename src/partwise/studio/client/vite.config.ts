import { svelte } from "@sveltejs/vite-plugin-svelte";
import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";

/** Every browser that runs this page reads woff2: the other two formats of KaTeX's fonts stay out. */
const oneFontFormat: Plugin = {
  name: "one-font-format",
  enforce: "pre",
  transform(code, id) {
    if (!/katex.*\.css/.test(id)) return null;
    return code.replace(/,\s*url\([^)]*\.(?:woff|ttf)\)\s*format\("[^"]*"\)/g, "");
  },
};

/** The page is served for every address, so its own links start at the root; chunks find each other. */
const rootedPage: Plugin = {
  name: "rooted-page",
  transformIndexHtml: {
    order: "post",
    handler: (html) => html.replaceAll('"./assets/', '"/assets/'),
  },
};

export default defineConfig({
  base: "./",
  plugins: [svelte(), oneFontFormat, rootedPage],
  build: {
    outDir: "../static",
    emptyOutDir: true,
    target: "es2022",
    cssTarget: ["chrome123", "firefox121", "safari17.5"],
    // An inlined font would be a data: address, which the content policy forbids.
    assetsInlineLimit: 0,
    // The editor is the largest part, and is loaded with the first cell alone.
    chunkSizeWarningLimit: 400,
  },
  server: {
    proxy: { "/api": { target: "http://127.0.0.1:8765", ws: true } },
  },
  test: { include: ["src/**/*.test.ts"], environment: "node" },
});
