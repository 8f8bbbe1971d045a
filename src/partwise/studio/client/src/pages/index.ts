/** The pages: an address, the section that is lit in the top bar, a title, and where its code is. */
import type { Component } from "svelte";
import type { Pair } from "../lib/i18n";
import { match, type Params } from "../lib/router";

// A page takes what its address names: `let { params }: { params: Params } = $props()`.
type Loader = () => Promise<{ default: Component<{ params: Params }> }>;
export type Section =
  | "course"
  | "explorer"
  | "labs"
  | "ladder"
  | "runs"
  | "playground"
  | "calculator";

export interface Page {
  pattern: string;
  section: Section;
  title: Pair;
  load: Loader;
}

// A file that is not there yet is a page that is not there yet.
const files = import.meta.glob<{ default: Component<{ params: Params }> }>("./*.svelte");

function page(pattern: string, section: Section, name: string, zh: string, en: string): Page[] {
  const load = files[`./${name}.svelte`];
  return load ? [{ pattern, section, title: { zh, en }, load }] : [];
}

export const PAGES: readonly Page[] = [
  ...page("/", "course", "Course", "课程", "Course"),
  ...page("/lesson/:number", "course", "Lesson", "课文", "Lesson"),
  ...page("/review", "course", "Review", "复习", "Review"),
  ...page("/explorer", "explorer", "Explorer", "探索", "Explorer"),
  ...page("/labs", "labs", "Labs", "实验", "Labs"),
  ...page("/labs/:name", "labs", "Lab", "实验", "Lab"),
  ...page("/ladder", "ladder", "Ladder", "阶梯", "Ladder"),
  ...page("/runs", "runs", "Runs", "训练", "Runs"),
  ...page("/runs/:name", "runs", "Run", "训练", "Run"),
  ...page("/playground", "playground", "Playground", "试写", "Playground"),
  ...page("/calculator", "calculator", "Calculator", "计算器", "Calculator"),
];

/** The sections of the top bar, in its order. */
export const SECTIONS: readonly { section: Section; path: string; title: Pair }[] = [
  { section: "course", path: "/", title: { zh: "课程", en: "Course" } },
  { section: "explorer", path: "/explorer", title: { zh: "探索", en: "Explorer" } },
  { section: "labs", path: "/labs", title: { zh: "实验", en: "Labs" } },
  { section: "ladder", path: "/ladder", title: { zh: "阶梯", en: "Ladder" } },
  { section: "runs", path: "/runs", title: { zh: "训练", en: "Runs" } },
  { section: "playground", path: "/playground", title: { zh: "试写", en: "Playground" } },
  { section: "calculator", path: "/calculator", title: { zh: "计算器", en: "Calculator" } },
];

export function find(path: string): { page: Page; params: Params } | null {
  for (const one of PAGES) {
    const params = match(one.pattern, path);
    if (params) return { page: one, params };
  }
  return null;
}
