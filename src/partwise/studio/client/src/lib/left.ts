/** What pages could not send, as they leave it to the next one; several may leave at once. */
import type { Kind } from "./progress.svelte";

export interface Left {
  lesson: string;
  cell: string;
  kind: Kind;
  /** When it was edited (seconds since 1970). */
  at?: number;
  content?: string | null;
  state?: unknown;
  hash?: string;
}

const KEY = "partwise.unsaved";

export function nameOf(one: Left): string {
  return `${one.lesson}\n${one.cell}\n${one.kind}`;
}

/** One of each cell and kind, the newer of two; of equals the second. */
export function merged(first: readonly Left[], second: readonly Left[]): Left[] {
  const found = new Map<string, Left>();
  for (const one of [...first, ...second]) {
    const known = found.get(nameOf(one));
    if (!known || (one.at ?? 0) >= (known.at ?? 0)) found.set(nameOf(one), one);
  }
  return [...found.values()];
}

/** All that is left; what is no list of ours is none. */
export function left(): Left[] {
  try {
    const found: unknown = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(found) ? (found as Left[]) : [];
  } catch {
    return [];
  }
}

export function leaveAll(all: readonly Left[]): void {
  if (all.length) localStorage.setItem(KEY, JSON.stringify(all));
  else localStorage.removeItem(KEY);
}
