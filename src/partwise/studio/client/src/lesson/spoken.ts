/** What a formula is called aloud, near enough, where an option of a question is nothing but one. */

const SIGNS: Record<string, string> = {
  times: "×",
  cdot: "·",
  infty: "∞",
  approx: "≈",
  le: "≤",
  ge: "≥",
  to: "→",
  sqrt: "√",
};

/** The text of an option that has no words of its own; undefined where it has some. */
export function spoken(markdown: string): string | undefined {
  const words = markdown.replace(/\$[^$]*\$/g, "");
  if (!markdown.includes("$") || /[\p{L}\p{N}]/u.test(words)) return undefined;
  return markdown
    .replace(/\$/g, "")
    .replace(/\\([a-zA-Z]+)/g, (_, name: string) => SIGNS[name] ?? name)
    .replace(/[{}\\]/g, "")
    .replace(/\s+/g, " ")
    .trim();
}
