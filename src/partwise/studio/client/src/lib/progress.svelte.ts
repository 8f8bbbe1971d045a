/**
 * What the learner did: edits, answers, checks. Kept by the server in the user's data folder; in a
 * static export by the browser. Saving waits a moment, and does not wait when the page is left.
 */
import { ApiError, get, post, sentence } from "./api";
import { exported } from "./exported";
import { leaveAll, left, type Left, merged, nameOf } from "./left";
import { onOpen } from "./socket";
import { after, type Answered, type Card } from "./review";

export type Kind = "code" | "quiz" | "check" | "read";
export interface Entry {
  content: string | null;
  state: unknown;
  /** The lesson's own cell is another one than when this was saved. */
  changed?: boolean;
  saved?: number;
}
type Entries = Record<string, Record<string, Partial<Record<Kind, Entry>>>>;

const KEY = "partwise.progress";
const WAIT = 700;

let entries = $state<Entries>({});
let loaded = $state(false);
let problem = $state<string | null>(null);
let loading: Promise<void> | null = null;
const unsaved = new Map<string, Left>();
let timer: ReturnType<typeof setTimeout> | undefined;
let sending: Promise<void> | null = null;
/** What this page has put by for the next one. */
let aside = new Map<string, Left>();

/** Reads what was kept, once; the cells wait for it. */
export function load(): Promise<void> {
  loading ??= (async () => {
    try {
      if (exported) entries = JSON.parse(localStorage.getItem(KEY) ?? "{}") as Entries;
      else {
        const kept = async (): Promise<Entries> =>
          (await get<{ lessons: Entries }>("/api/progress")).lessons ?? {};
        entries = await kept();
        if (await sendLeft(entries)) entries = await kept();
      }
    } catch (error) {
      problem = sentence(error);
      loading = null;
      if (error instanceof ApiError && error.status === 401) throw error;
    } finally {
      loaded = true;
    }
  })();
  return loading;
}

/**
 * Sends what an earlier page could not, unless something newer stands there; whether anything was
 * sent. What makes no sense to the server is not tried again, and what a full disk refused is.
 */
async function sendLeft(known: Entries): Promise<boolean> {
  const waiting = left();
  leaveAll([]);
  let sent = false;
  for (const [place, body] of waiting.entries()) {
    const saved = known[body.lesson]?.[body.cell]?.[body.kind]?.saved ?? 0;
    if (body.at !== undefined && saved > body.at) continue;
    try {
      await post("/api/progress", body);
      sent = true;
    } catch (error) {
      if (error instanceof ApiError && error.kind === "usage") continue;
      // Another page may have left something meanwhile.
      leaveAll(merged(left(), waiting.slice(place)));
      throw error;
    }
  }
  return sent;
}

function putBy(): void {
  try {
    // What another page put by is left there.
    const others = left().filter((one) => {
      const mine = aside.get(nameOf(one));
      return !mine || (one.at ?? 0) > (mine.at ?? 0);
    });
    const all = merged(others, [...unsaved.values()]);
    if (all.length || aside.size) leaveAll(all);
    aside = new Map(unsaved);
  } catch {
    // The page still holds it and says that it is not saved.
  }
}

export function entry(lesson: string, cell: string, kind: Kind): Entry | null {
  return entries[lesson]?.[cell]?.[kind] ?? null;
}

/** Keeps an entry, or forgets it where content and state are both null. */
export function keep(
  lesson: string,
  cell: string,
  kind: Kind,
  value: { content?: string | null; state?: unknown; hash?: string },
): void {
  const content = value.content ?? null;
  const state = value.state ?? null;
  const cells = (entries[lesson] ??= {});
  const kinds = (cells[cell] ??= {});
  if (content === null && state === null) delete kinds[kind];
  else kinds[kind] = { content, state, changed: false, saved: Date.now() / 1000 };
  const body = { lesson, cell, kind, content, state, hash: value.hash, at: Date.now() / 1000 };
  unsaved.set(nameOf(body), body);
  clearTimeout(timer);
  timer = setTimeout(() => void flush(), WAIT);
}

/** Sends what was not yet sent, one entry after the other, so that the newest of a cell is the last. */
export function flush(): Promise<void> {
  clearTimeout(timer);
  sending ??= send().finally(() => (sending = null));
  return sending;
}

async function send(): Promise<void> {
  if (exported) {
    unsaved.clear();
    try {
      localStorage.setItem(KEY, JSON.stringify(entries));
    } catch (error) {
      problem = sentence(error);
    }
    return;
  }
  putBy();
  const refused = new Set<Left>();
  let mistake: string | null = null;
  // What comes meanwhile is sent too; an entry is unsaved until it has arrived, and so is a newer one.
  for (const [name] of unsaved) {
    const body = unsaved.get(name)!;
    if (refused.has(body)) break;
    try {
      await post("/api/progress", body);
    } catch (error) {
      mistake = sentence(error);
      refused.add(body);
    }
    const newest = unsaved.get(name)!;
    unsaved.delete(name);
    // As the last: what is refused is tried again with the next change, after all others.
    if (refused.has(body) || newest !== body) unsaved.set(name, newest);
  }
  problem = mistake;
  putBy();
}

function leave(): void {
  if (exported) {
    void flush();
    return;
  }
  for (const body of unsaved.values()) {
    void fetch("/api/progress", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
      keepalive: true,
    }).catch(() => undefined);
  }
  // Where the server ends at the same moment, the next visit sends them.
  putBy();
}
globalThis.window?.addEventListener("pagehide", leave);
if (globalThis.window) onOpen(() => void (unsaved.size && flush()));

export function answered(lesson: string, cell: string): Answered | null {
  return (entry(lesson, cell, "quiz")?.state as Answered | null | undefined) ?? null;
}

/** Keeps an answer to a question and when the question comes back. */
export function answer(lesson: string, cell: string, right: boolean, given: unknown, hash?: string): void {
  const state = after(answered(lesson, cell), right, Date.now() / 1000, given);
  keep(lesson, cell, "quiz", { state, hash });
}

export function passed(lesson: string, cell: string): boolean {
  const state = entry(lesson, cell, "check")?.state as { passed?: boolean } | null | undefined;
  return state?.passed ?? false;
}

/** All questions that were ever answered. */
export function cards(): Card[] {
  return Object.entries(entries).flatMap(([lesson, cells]) =>
    Object.entries(cells).flatMap(([cell, kinds]) =>
      kinds.quiz?.state ? [{ lesson, cell, answered: kinds.quiz.state as Answered }] : [],
    ),
  );
}

export const progress = {
  get loaded() {
    return loaded;
  },
  get problem() {
    return problem;
  },
};
