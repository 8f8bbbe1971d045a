import { expect, test } from "vitest";
import { spoken } from "./spoken";

test.each([
  ["$d$", "d"],
  ["$L \\times V$", "L × V"],
  ["$B \\cdot L$", "B · L"],
  ["$g/2$, ", "g/2,"],
  ["$d$ of them", undefined],
  ["$B \\cdot L$ 个", undefined],
  ["Twice", undefined],
  ["`softmax`", undefined],
])("an option that is a formula: %s", (text, said) => {
  expect(spoken(text)).toBe(said);
});
