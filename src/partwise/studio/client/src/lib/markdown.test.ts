import { expect, test } from "vitest";
import { headings, render, renderInline } from "./markdown";

test("raw HTML and script addresses stay text", () => {
  const html = render('<img src=x onerror=alert(1)> [a](javascript:alert(1)) <b>x</b>', "c");
  expect(html).not.toMatch(/<img|<b>|href="javascript/);
  expect(html).toContain("&lt;img");
});

test("formulas become empty elements with their LaTeX, untouched by Markdown", () => {
  expect(renderInline("$a_1 * b_2 * c$")).toBe('<span class="math" data-latex="a_1 * b_2 * c"></span>');
  expect(renderInline("因此$x<y$。")).toContain('data-latex="x&lt;y"');
  expect(render("$$\n\\frac{a}{b}\n$$", "c")).toContain('class="math display"');
});

test("money and lone dollars are no formulas", () => {
  expect(renderInline("5 $ or 6 $")).toBe("5 $ or 6 $");
  expect(renderInline("a \\$x\\$ b")).toBe("a $x$ b");
  expect(renderInline("`$x$`")).toBe("<code>$x$</code>");
});

test("no style attribute reaches the page", () => {
  const html = render("| a | b |\n|---|--:|\n| 1 | 2 |", "c");
  expect(html).not.toContain("style=");
  expect(html).toContain('class="end"');
});

test("headings of the contents and of the text have the same ids", () => {
  const source = "# 一\n\n## Why `x`?\n\ntext";
  const html = render(source, "c");
  for (const heading of headings(source, "c")) expect(html).toContain(`id="${heading.id}"`);
  expect(html).not.toContain("<h1");
});

test("no line can begin with the mark after a formula, nor end with the one before", () => {
  const math = (latex: string): string => `<span class="math" data-latex="${latex}"></span>`;
  expect(renderInline("概率是 $p$，就")).toBe(`概率是 <span class="bound">${math("p")}，</span>就`);
  expect(renderInline("（$a$）和$b$")).toBe(`<span class="bound">（${math("a")}）</span>和${math("b")}`);
  expect(renderInline("the $x$, $y$.")).toBe(
    `the <span class="bound">${math("x")},</span> <span class="bound">${math("y")}.</span>`,
  );
});
