/** Formulas: KaTeX and its styles are loaded with the first one that a page shows. */

type Katex = typeof import("katex").default;

let loading: Promise<Katex> | null = null;

function load(): Promise<Katex> {
  loading ??= Promise.all([import("katex"), import("katex/dist/katex.min.css")]).then(
    ([katex]) => katex.default,
    (error: unknown) => {
      // The next formula tries again.
      loading = null;
      throw error;
    },
  );
  return loading;
}

/** Draws one formula into an element. A fault in it is shown, not thrown. */
export async function formula(element: HTMLElement, latex: string, display: boolean): Promise<void> {
  element.dataset["latex"] = latex;
  try {
    const katex = await load();
    // Meanwhile the page may show another one there.
    if (element.dataset["latex"] !== latex) return;
    katex.render(latex, element, { displayMode: display, throwOnError: false, strict: false });
  } catch {
    // The server is gone: the source of the formula can be read as well.
    if (element.dataset["latex"] === latex) element.textContent = latex;
  }
}

/** Draws every formula that `render` left to be drawn. */
export function drawn(root: HTMLElement): void {
  for (const element of root.querySelectorAll<HTMLElement>(".math[data-latex]")) {
    void formula(element, element.dataset["latex"] ?? "", element.classList.contains("display"));
  }
}
