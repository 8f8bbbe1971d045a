import { expect, test } from "vitest";
import { append, MOST_TEXT, obeyed, withoutEscapes } from "./output";
import type { Output } from "./types";

const cut = (left: number): string => `[${left}]`;

test("a progress bar is one line", () => {
  expect(obeyed("10%\r50%\r100%\n")).toBe("100%\n");
  expect(obeyed("long line\rab")).toBe("abng line");
  expect(obeyed("a\r\nb")).toBe("a\nb");
});

test("colours of a terminal are left out", () => {
  expect(withoutEscapes("\u001b[0;31mNameError\u001b[0m: x")).toBe("NameError: x");
});

test("pieces of a stream join, other streams stay apart", () => {
  const outputs: Output[] = [];
  append(outputs, { kind: "stream", name: "stdout", text: "a" }, cut);
  append(outputs, { kind: "stream", name: "stdout", text: "b\rc" }, cut);
  append(outputs, { kind: "stream", name: "stderr", text: "d" }, cut);
  expect(outputs).toEqual([
    { kind: "stream", name: "stdout", text: "cb" },
    { kind: "stream", name: "stderr", text: "d" },
  ]);
});

test("a flood keeps its beginning and its end", () => {
  const outputs: Output[] = [];
  for (let index = 0; index < 40; index += 1) {
    append(outputs, { kind: "stream", name: "stdout", text: `${index} ${"x".repeat(9000)}\n` }, cut);
  }
  const [only] = outputs;
  if (only?.kind !== "stream") throw new Error("one stream");
  expect(only.text.length).toBeLessThan(MOST_TEXT + 100);
  expect(only.text.startsWith("0 x")).toBe(true);
  expect(only.text.includes("39 x")).toBe(true);
});

test("a backspace takes one character back", () => {
  expect(obeyed("abc\b\bd\n\b")).toBe("ad\n");
});
