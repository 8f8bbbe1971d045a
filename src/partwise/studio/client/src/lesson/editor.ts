/** The code editor: CodeMirror with Python, the kernel's completion, and a line that can be marked. */
import {
  acceptCompletion,
  autocompletion,
  closeBrackets,
  closeBracketsKeymap,
  type CompletionContext,
  type CompletionResult,
  completionKeymap,
} from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { python } from "@codemirror/lang-python";
import { bracketMatching, indentOnInput, indentUnit, syntaxHighlighting } from "@codemirror/language";
import { Compartment, EditorState, Prec, StateEffect, StateField } from "@codemirror/state";
import {
  Decoration,
  type DecorationSet,
  drawSelection,
  EditorView,
  highlightActiveLine,
  keymap,
  lineNumbers,
} from "@codemirror/view";
import { editorColours } from "../lib/highlight";
import type { Match } from "../lib/kernel.svelte";

export interface Wishes {
  code: string;
  label: string;
  readOnly: boolean;
  changed: (code: string) => void;
  run: () => void;
  runAndGoOn: () => void;
  complete: (
    code: string,
    cursor: number,
  ) => Promise<{ start: number; end: number; matches: Match[] } | null>;
}

const markLine = StateEffect.define<number | null>();
const marked = Decoration.line({ class: "cm-error-line" });

const markedLine = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update(decorations, change) {
    // The mark is about the code that ran: the next edit takes it away.
    let now = change.docChanged ? Decoration.none : decorations;
    for (const effect of change.effects) {
      if (!effect.is(markLine)) continue;
      const line = effect.value;
      now =
        line === null || line < 1 || line > change.state.doc.lines
          ? Decoration.none
          : Decoration.set([marked.range(change.state.doc.line(line).from)]);
    }
    return now;
  },
  provide: (field) => EditorView.decorations.from(field),
});

/**
 * Typing over a selection is done here: left to itself, Chromium keeps the look of what was selected
 * by a style attribute, which the content policy refuses with a line in the console.
 */
const typedOver = EditorView.domEventHandlers({
  beforeinput(event, view) {
    const text = event.data;
    if (event.inputType !== "insertText" || text === null || view.composing) return false;
    const { from, to, empty } = view.state.selection.main;
    if (empty || view.state.readOnly) return false;
    const insert = () =>
      view.state.update(view.state.replaceSelection(text), {
        userEvent: "input.type",
        scrollIntoView: true,
      });
    const handlers = view.state.facet(EditorView.inputHandler);
    if (!handlers.some((handler) => handler(view, from, to, text, insert))) view.dispatch(insert());
    event.preventDefault();
    return true;
  },
});

const KINDS: Record<string, string> = {
  function: "function",
  class: "class",
  module: "namespace",
  keyword: "keyword",
  instance: "variable",
  statement: "variable",
  property: "property",
  param: "property",
};

function source(complete: Wishes["complete"]) {
  return async (context: CompletionContext): Promise<CompletionResult | null> => {
    const word = context.matchBefore(/[\w.]+/);
    if (!context.explicit && !word) return null;
    if (!context.explicit && word && /^\d/.test(word.text)) return null;
    const found = await complete(context.state.doc.toString(), context.pos);
    if (!found || context.aborted || found.matches.length === 0) return null;
    return {
      from: found.start,
      options: found.matches.map((match) => ({
        label: match.text,
        // The kernel says ".linspace" after "np": the dot stands there already.
        displayLabel: match.text.replace(/^\./, ""),
        type: KINDS[match.type] ?? "variable",
      })),
      validFor: /^\.?\w*$/,
    };
  };
}

export interface Editor {
  view: EditorView;
  set: (code: string) => void;
  mark: (line: number | null) => void;
  relabel: (label: string) => void;
}

export function createEditor(parent: HTMLElement, wishes: Wishes): Editor {
  const nonce = document.querySelector<HTMLMetaElement>('meta[name="csp-nonce"]')?.content ?? "";
  const labels = new Compartment();
  const labelled = (label: string) => EditorView.contentAttributes.of({ "aria-label": label, tabindex: "0" });
  // While an input method is composing, Enter chooses a word and runs nothing.
  const unless = (act: () => void) => (view: EditorView) => {
    if (view.composing || view.compositionStarted) return false;
    act();
    return true;
  };
  const runKeys = [
    { key: "Ctrl-Enter", run: unless(wishes.run) },
    { key: "Meta-Enter", run: unless(wishes.run) },
    { key: "Shift-Enter", run: unless(wishes.runAndGoOn) },
    // Tab takes a completion that is open; else it is not captured and leaves the editor.
    { key: "Tab", run: acceptCompletion },
  ];
  const view = new EditorView({
    parent,
    state: EditorState.create({
      doc: wishes.code,
      extensions: [
        Prec.highest(keymap.of(runKeys)),
        EditorView.cspNonce.of(nonce),
        lineNumbers(),
        history(),
        drawSelection(),
        highlightActiveLine(),
        indentUnit.of("    "),
        EditorState.tabSize.of(4),
        indentOnInput(),
        bracketMatching(),
        closeBrackets(),
        python(),
        syntaxHighlighting(editorColours),
        autocompletion({ override: [source(wishes.complete)], icons: false, activateOnTyping: true }),
        keymap.of([...closeBracketsKeymap, ...completionKeymap, ...historyKeymap, ...defaultKeymap]),
        markedLine,
        typedOver,
        labels.of(labelled(wishes.label)),
        EditorState.readOnly.of(wishes.readOnly),
        EditorView.editable.of(!wishes.readOnly),
        EditorView.updateListener.of((update) => {
          if (update.docChanged) wishes.changed(update.state.doc.toString());
        }),
      ],
    }),
  });
  return {
    view,
    set(code) {
      if (view.state.doc.toString() === code) return;
      view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: code } });
    },
    mark(line) {
      view.dispatch({ effects: markLine.of(line) });
    },
    relabel(label) {
      view.dispatch({ effects: labels.reconfigure(labelled(label)) });
    },
  };
}
