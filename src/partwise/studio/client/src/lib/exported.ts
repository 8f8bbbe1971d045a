/** What a static export holds: the page's data, so that it needs no server. */

export interface Exported {
  /** The path that this file shows, e.g. "/lesson/06.5". */
  path: string;
  language?: "zh" | "en";
  /** Answers by request: "GET /api/lessons/06.5", "POST /api/trace {body as canonical JSON}". */
  answers: Record<string, unknown>;
  /** What each cell showed when it was exported: lesson number, then cell id. */
  outputs: Record<string, Record<string, unknown[]>>;
}

function read(): Exported | null {
  const element = globalThis.document?.getElementById("partwise-export");
  if (!element?.textContent) return null;
  return JSON.parse(element.textContent) as Exported;
}

/** Null in the running studio. */
export const exported: Exported | null = read();

/** JSON with sorted keys, so that equal requests have equal names. */
export function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value !== null && typeof value === "object") {
    const entries = Object.entries(value)
      .filter(([, inner]) => inner !== undefined)
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([key, inner]) => `${JSON.stringify(key)}:${canonical(inner)}`);
    return `{${entries.join(",")}}`;
  }
  return JSON.stringify(value);
}

export function requestName(method: string, path: string, body?: unknown): string {
  return body === undefined ? `${method} ${path}` : `${method} ${path} ${canonical(body)}`;
}
