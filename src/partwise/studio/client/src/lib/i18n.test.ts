import { expect, test } from "vitest";
import { count, fill, languageOf, setLanguage, t } from "./i18n";

test("the browser's first language that is known decides", () => {
  expect(languageOf(["zh-TW", "en"])).toBe("zh");
  expect(languageOf(["de-DE", "zh-Hans-CN", "en"])).toBe("zh");
  expect(languageOf(["fr", "en-GB"])).toBe("en");
  expect(languageOf(["fr"])).toBe("en");
});

test("values are filled in, and one that is missing can be seen", () => {
  expect(fill("{a} / {b}", { a: 1, b: "x" })).toBe("1 / x");
  expect(fill("{a} {c}", { a: 0 })).toBe("0 {c}");
});

test("a pair follows the language", () => {
  const pair = { zh: "第 {n} 题", en: "Question {n}" };
  setLanguage("en", false);
  expect(t(pair, { n: 3 })).toBe("Question 3");
  setLanguage("zh", false);
  expect(t(pair, { n: 3 })).toBe("第 3 题");
});

test("numbers have groups and a true minus sign", () => {
  expect(count(-1234567)).toBe("−1,234,567");
});
