/**
 * Markdown to HTML with raw HTML off. Formulas become empty elements that hold their LaTeX as data:
 * they are drawn into the document afterwards (`lib/formula`), so that no style stands in a string.
 */
import MarkdownIt from "markdown-it";

const markdown = new MarkdownIt({ html: false, linkify: false, typographer: false });

/** The end of a formula that starts at `from`, or -1: a dollar after a space closes nothing. */
export function closing(source: string, from: number, mark: "$" | "$$"): number {
  let at = from;
  for (;;) {
    at = source.indexOf(mark, at);
    if (at === -1) return -1;
    if (source[at - 1] === "\\") {
      at += mark.length;
      continue;
    }
    if (mark === "$" && /[\s$]/.test(source[at - 1] ?? "")) return -1;
    return at === from ? -1 : at;
  }
}

markdown.inline.ruler.after("escape", "math", (state, silent) => {
  if (state.src[state.pos] !== "$") return false;
  const mark = state.src.startsWith("$$", state.pos) ? "$$" : "$";
  const from = state.pos + mark.length;
  if (mark === "$" && /\s/.test(state.src[from] ?? " ")) return false;
  const end = closing(state.src, from, mark);
  if (end === -1 || end >= state.posMax) return false;
  if (!silent) {
    const token = state.push(mark === "$$" ? "math_display" : "math_inline", "", 0);
    token.content = state.src.slice(from, end).trim();
  }
  state.pos = end + mark.length;
  return true;
});

function placeholder(display: boolean): (latex: string) => string {
  return (latex) =>
    `<span class="${display ? "math display" : "math"}" data-latex="${markdown.utils.escapeHtml(latex)}"></span>`;
}

const inline = placeholder(false);
const block = placeholder(true);

// No line begins with a comma or ends with an opening bracket. A browser breaks a line at a formula
// whatever stands beside it, so its marks are bound to it (a long one may still break inside).
const OPENING = /[（「『《“‘([]+$/u;
const CLOSING = /^[，。；：、！？）」』》”’…,.;:!?)\]]+/u;
const LONGEST_BOUND = 40;

markdown.core.ruler.after("inline", "bound", (state) => {
  for (const { children } of state.tokens) {
    for (const [index, token] of (children ?? []).entries()) {
      if (token.type !== "math_inline" || token.content.length > LONGEST_BOUND) continue;
      const before = children![index - 1];
      const after = children![index + 1];
      const opening = before?.type === "text" ? (OPENING.exec(before.content)?.[0] ?? "") : "";
      const closing = after?.type === "text" ? (CLOSING.exec(after.content)?.[0] ?? "") : "";
      if (opening) before!.content = before!.content.slice(0, -opening.length);
      if (closing) after!.content = after!.content.slice(closing.length);
      token.meta = { opening, closing };
    }
  }
});

markdown.renderer.rules["math_inline"] = (tokens, index) => {
  const { content, meta } = tokens[index]!;
  const { opening = "", closing = "" } = (meta ?? {}) as { opening?: string; closing?: string };
  if (!opening && !closing) return inline(content);
  const { escapeHtml } = markdown.utils;
  return `<span class="bound">${escapeHtml(opening)}${inline(content)}${escapeHtml(closing)}</span>`;
};
markdown.renderer.rules["math_display"] = (tokens, index) => block(tokens[index]!.content);

// The alignment of a table's column: a class, since the content policy forbids style attributes.
for (const rule of ["th_open", "td_open"]) {
  markdown.renderer.rules[rule] = (tokens, index, options, _env, self) => {
    const token = tokens[index]!;
    const style = token.attrGet("style");
    if (style) {
      token.attrs = (token.attrs ?? []).filter(([name]) => name !== "style");
      if (String(style).includes("right")) token.attrJoin("class", "end");
    }
    return self.renderToken(tokens, index, options);
  };
}

// A wide table scrolls in a box of its own, never the page.
markdown.renderer.rules["table_open"] = () => '<div class="scroll"><table>';
markdown.renderer.rules["table_close"] = () => "</table></div>";

export interface Heading {
  id: string;
  text: string;
  level: number;
}

/** A name for an address from a heading's text; Chinese stays Chinese. */
export function slug(text: string): string {
  return text
    .toLowerCase()
    .replace(/[^\p{Letter}\p{Number}]+/gu, "-")
    .replace(/^-+|-+$/g, "");
}

/** The headings of a text, in order, with the ids that `render` gives them. */
export function headings(source: string, prefix: string): Heading[] {
  const found: Heading[] = [];
  const tokens = markdown.parse(source, {});
  for (const [index, token] of tokens.entries()) {
    if (token.type !== "heading_open") continue;
    const text = (tokens[index + 1]?.content ?? "").replace(/[`*$]/g, "");
    found.push({ id: `${prefix}-${slug(text)}`, text, level: Number(token.tag.slice(1)) });
  }
  return found;
}

/** HTML of a whole text; headings get ids that begin with `prefix`. */
export function render(source: string, prefix: string): string {
  const tokens = markdown.parse(source, {});
  for (const [index, token] of tokens.entries()) {
    if (token.type !== "heading_open") continue;
    const text = (tokens[index + 1]?.content ?? "").replace(/[`*$]/g, "");
    token.attrSet("id", `${prefix}-${slug(text)}`);
    // The lesson's title is the page's only h1.
    if (token.tag === "h1") {
      token.tag = "h2";
      const close = tokens.slice(index).find((other) => other.type === "heading_close");
      if (close) close.tag = "h2";
    }
  }
  return markdown.renderer.render(tokens, markdown.options, {});
}

/** HTML of one line, without a paragraph around it. */
export function renderInline(source: string): string {
  return markdown.renderInline(source);
}
