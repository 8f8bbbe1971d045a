import { expect, test } from "vitest";
import { seen } from "./token";

test.each([
  [{ id: 1, text: " the\n" }, "␣the↵"],
  [{ id: 2, text: "\u0005a" }, "⟨05⟩a"],
  [{ id: 3, text: "\u0085" }, "⟨85⟩"],
  [{ id: 4, text: "�", bytes: "e4" }, "⟨E4⟩"],
  [{ id: 5, text: "" }, "#5"],
])("a token on the screen: %j", (token, shown) => {
  expect(seen(token)).toBe(shown);
});
