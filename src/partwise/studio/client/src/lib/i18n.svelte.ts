/** The reader's language, and texts that exist in both. */

export type Language = "zh" | "en";
export interface Pair {
  zh: string;
  en: string;
}
type Values = Record<string, string | number>;

const KEY = "partwise.language";

function stored(): Language | null {
  try {
    const value = localStorage.getItem(KEY);
    return value === "zh" || value === "en" ? value : null;
  } catch {
    return null;
  }
}

/** The language of a browser that has not been told: Chinese for every Chinese, else English. */
export function languageOf(tags: readonly string[]): Language {
  for (const tag of tags) {
    if (/^zh\b/i.test(tag)) return "zh";
    if (/^en\b/i.test(tag)) return "en";
  }
  return "en";
}

let current = $state<Language>(
  stored() ?? languageOf(globalThis.navigator?.languages ?? ["zh"]),
);

export function language(): Language {
  return current;
}

export function isLanguageChosen(): boolean {
  return stored() !== null;
}

/** Sets the language; `remember: false` for one that came from the server's settings. */
export function setLanguage(value: Language, remember = true): void {
  current = value;
  if (remember) {
    try {
      localStorage.setItem(KEY, value);
    } catch {
      // A browser without storage forgets the choice; nothing else depends on it.
    }
  }
  if (globalThis.document) document.documentElement.lang = htmlLanguage();
}

export function htmlLanguage(value: Language = current): string {
  return value === "zh" ? "zh-CN" : "en";
}

/** Fills {name} in a template; a name without a value stays as it is, to be seen. */
export function fill(template: string, values: Values): string {
  return template.replace(/\{(\w+)\}/g, (whole, name: string) => String(values[name] ?? whole));
}

/** The text of a pair in the reader's language. Reactive where it is called from a template. */
export function t(pair: Pair, values?: Values): string {
  const text = pair[current];
  return values ? fill(text, values) : text;
}

/** A number as both languages write it: 1,234,567 and a true minus sign. */
export function count(value: number): string {
  return Math.round(value).toLocaleString("en-US").replace("-", "−");
}
