/** Addresses without a hash: /lesson/06.5. A static export has one file a lesson instead. */
import { exported } from "./exported";

export type Params = Record<string, string>;

/** Compares a path with a pattern such as "/lesson/:number". */
export function match(pattern: string, path: string): Params | null {
  const wanted = pattern.split("/");
  const given = path.split("/");
  if (wanted.length !== given.length) return null;
  const params: Params = {};
  for (const [index, part] of wanted.entries()) {
    const value = given[index] ?? "";
    if (part.startsWith(":")) {
      if (!value) return null;
      try {
        params[part.slice(1)] = decodeURIComponent(value);
      } catch {
        return null;
      }
    } else if (part !== value) return null;
  }
  return params;
}

/** One spelling of a path: no empty end. */
export function normal(path: string): string {
  const short = path.replace(/\/+$/, "");
  return short === "" ? "/" : short;
}

/** The file that shows a path in a static export, or null where the export has none. */
export function exportedFile(path: string): string | null {
  if (path === "/") return "./index.html";
  const lesson = match("/lesson/:number", path);
  return lesson ? `./${lesson["number"]}.html` : null;
}

const fixed = exported?.path;
let path = $state(fixed ?? normal(globalThis.location?.pathname ?? "/"));
let query = $state(globalThis.location?.search ?? "");

export function currentPath(): string {
  return path;
}

export function currentQuery(): URLSearchParams {
  return new URLSearchParams(query);
}

/** The address to put into a link: `<a href={href("/lesson/06.5")}>`. */
export function href(to: string): string {
  if (!exported) return to;
  return exportedFile(normal(to.split(/[?#]/)[0] ?? "/")) ?? "./index.html";
}

export function go(to: string, replace = false): void {
  if (exported) {
    location.href = href(to);
    return;
  }
  const url = new URL(to, location.origin);
  history[replace ? "replaceState" : "pushState"](null, "", url);
  const moved = normal(url.pathname) !== path;
  path = normal(url.pathname);
  query = url.search;
  if (moved && !replace) window.scrollTo({ top: 0, behavior: "instant" });
}

/** Makes ordinary links inside the app move without loading the page again. */
export function listen(): () => void {
  const moved = () => {
    path = normal(location.pathname);
    query = location.search;
  };
  const clicked = (event: MouseEvent) => {
    if (exported || event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = (event.target as Element | null)?.closest?.("a");
    if (!link || link.target || link.hasAttribute("download")) return;
    const url = new URL(link.href, location.href);
    if (url.origin !== location.origin || url.pathname.startsWith("/api/")) return;
    if (url.pathname === location.pathname && url.hash) return;
    event.preventDefault();
    go(url.pathname + url.search + url.hash);
  };
  window.addEventListener("popstate", moved);
  document.addEventListener("click", clicked);
  return () => {
    window.removeEventListener("popstate", moved);
    document.removeEventListener("click", clicked);
  };
}
