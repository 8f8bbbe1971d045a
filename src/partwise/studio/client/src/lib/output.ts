/** What a cell shows: streams joined, carriage returns obeyed, colours of a terminal left out. */
import type { Output } from "./types";

/** More text than this of one cell is cut in its middle: a page is no log file. */
export const MOST_TEXT = 120_000;

const ESCAPES = /\u001b\[[0-9;?]*[ -/]*[@-~]|\u001b\][^\u0007]*\u0007|\u001b[@-Z\\-_]/g;

export function withoutEscapes(text: string): string {
  return text.replace(ESCAPES, "");
}

/** A carriage return begins the line anew; a backspace takes one character back. */
export function obeyed(text: string): string {
  if (!text.includes("\r") && !text.includes("\b")) return text;
  return text
    .replaceAll("\r\n", "\n")
    .split("\n")
    .map((line) => {
      const parts = line.split("\r");
      let shown = "";
      for (const part of parts) shown = part + shown.slice(part.length);
      while (/[^\u0008]\u0008/.test(shown)) shown = shown.replace(/[^\u0008]\u0008/g, "");
      return shown.replaceAll("\b", "");
    })
    .join("\n");
}

export function shortened(text: string, cut: (left: number) => string): string {
  if (text.length <= MOST_TEXT) return text;
  const half = MOST_TEXT / 2;
  return `${text.slice(0, half)}\n${cut(text.length - MOST_TEXT)}\n${text.slice(-half)}`;
}

/** Adds an output to those of a cell, in place: text of one stream grows its last piece. */
export function append(outputs: Output[], output: Output, cut: (left: number) => string): void {
  const last = outputs.at(-1);
  if (output.kind === "stream" && last?.kind === "stream" && last.name === output.name) {
    last.text = shortened(obeyed(last.text + withoutEscapes(output.text)), cut);
  } else if (output.kind === "stream") {
    outputs.push({ ...output, text: shortened(obeyed(withoutEscapes(output.text)), cut) });
  } else if (output.kind === "error") {
    outputs.push({ ...output, traceback: output.traceback.map(withoutEscapes) });
  } else if (output.kind === "text") {
    outputs.push({ ...output, text: shortened(withoutEscapes(output.text), cut) });
  } else outputs.push(output);
}
