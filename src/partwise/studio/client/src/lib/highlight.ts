/** Python in colours: for the editor and for samples in a text, by the same rules. */
import { HighlightStyle } from "@codemirror/language";
import { pythonLanguage } from "@codemirror/lang-python";
import { highlightCode, tagHighlighter, tags, type Tag } from "@lezer/highlight";

const RULES: readonly { tag: Tag | Tag[]; class: string }[] = [
  { tag: [tags.keyword, tags.controlKeyword, tags.definitionKeyword, tags.moduleKeyword, tags.operatorKeyword], class: "py-keyword" },
  { tag: [tags.string, tags.special(tags.string), tags.docString], class: "py-string" },
  { tag: [tags.number, tags.bool, tags.null], class: "py-number" },
  { tag: [tags.comment, tags.lineComment], class: "py-comment" },
  { tag: [tags.function(tags.definition(tags.variableName)), tags.definition(tags.className), tags.className], class: "py-defined" },
  { tag: [tags.meta, tags.self], class: "py-meta" },
];

export const editorColours = HighlightStyle.define(RULES as { tag: Tag | Tag[]; class: string }[]);
const colours = tagHighlighter(RULES as { tag: Tag | Tag[]; class: string }[]);

/** Colours every `code.language-python` below an element, by text nodes and spans. */
export function highlighted(root: HTMLElement): void {
  for (const element of root.querySelectorAll<HTMLElement>("pre > code.language-python")) {
    const source = element.textContent ?? "";
    const fragment = document.createDocumentFragment();
    highlightCode(
      source,
      pythonLanguage.parser.parse(source),
      colours,
      (text, classes) => {
        if (!classes) fragment.append(text);
        else {
          const span = document.createElement("span");
          span.className = classes;
          span.textContent = text;
          fragment.append(span);
        }
      },
      () => fragment.append("\n"),
    );
    element.replaceChildren(fragment);
  }
}
