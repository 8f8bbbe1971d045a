import { beforeEach, expect, it, vi } from "vitest";
import type { Left } from "./left";

const LEFT = "partwise.unsaved";
const stored = new Map<string, string>();
const posted: Left[] = [];
let online = false;
let kept = {};
let read = 0;

async function page(): Promise<typeof import("./progress.svelte")> {
  vi.resetModules();
  return import("./progress.svelte");
}

function waiting(): unknown[] {
  const all = JSON.parse(stored.get(LEFT) ?? "[]") as Left[];
  return all.map((one) => one.content).sort();
}

beforeEach(() => {
  stored.clear();
  posted.length = read = 0;
  online = false;
  kept = {};
  vi.stubGlobal("localStorage", {
    getItem: (name: string) => stored.get(name) ?? null,
    setItem: (name: string, text: string) => void stored.set(name, text),
    removeItem: (name: string) => void stored.delete(name),
  });
  vi.stubGlobal("fetch", async (_: string, asked: { method: string; body?: string }) => {
    if (!online) throw new TypeError("no server");
    if (asked.method === "POST") posted.push(JSON.parse(asked.body ?? "") as Left);
    else read += 1;
    return new Response(JSON.stringify({ lessons: kept }));
  });
});

// Each page loads its modules anew, which takes a busy machine seconds.
it("keeps the edits of every page that is left while the server is gone", { timeout: 30_000 }, async () => {
  const first = await page();
  first.keep("05", "a", "code", { content: "one" });
  first.keep("05", "b", "code", { content: "old" });
  await first.flush();
  const second = await page();
  second.keep("05", "b", "code", { content: "new" });
  await second.flush();
  expect(waiting()).toEqual(["new", "one"]);
  // A page that has sent its own takes back nothing else.
  online = true;
  await second.flush();
  expect(waiting()).toEqual(["one"]);
  await (await page()).load();
  expect(posted.map((one) => one.content)).toEqual(["new", "one"]);
});

it("sends the newest of a cell last, however slow the server is", { timeout: 30_000 }, async () => {
  online = true;
  const answers: (() => void)[] = [];
  vi.stubGlobal("fetch", async (_: string, asked: { body: string }) => {
    posted.push(JSON.parse(asked.body) as Left);
    await new Promise<void>((resolve) => answers.push(resolve));
    return new Response("{}");
  });
  const { keep, flush } = await page();
  keep("05", "a", "code", { content: "one" });
  keep("05", "b", "code", { content: "old" });
  const sent = [flush()];
  // Both change while the first is on its way, and are sent again before it has arrived.
  keep("05", "b", "code", { content: "new" });
  keep("05", "a", "code", { content: "two" });
  sent.push(flush());
  while (answers.length) {
    answers.shift()!();
    await new Promise((resolve) => setTimeout(resolve));
  }
  await Promise.all(sent);
  expect(posted.map((one) => one.content)).toEqual(["one", "new", "two"]);
});

it("sends the others where one is refused", { timeout: 30_000 }, async () => {
  vi.stubGlobal("fetch", async (_: string, asked: { body: string }) => {
    const body = JSON.parse(asked.body) as Left;
    posted.push(body);
    return new Response("{}", { status: body.cell === "a" ? 507 : 200 });
  });
  const { keep, flush, progress } = await page();
  keep("05", "a", "code", { content: "one" });
  const sent = flush();
  keep("05", "b", "code", { content: "two" });
  await Promise.all([sent, flush()]);
  expect(posted.map((one) => one.content)).toEqual(["one", "two"]);
  expect([waiting(), progress.problem === null]).toEqual([["one"], false]);
});

it("asks again only where something was sent", { timeout: 30_000 }, async () => {
  online = true;
  stored.set(LEFT, JSON.stringify([{ lesson: "05", cell: "a", kind: "code", at: 5 }]));
  kept = { "05": { a: { code: { content: "newer", state: null, saved: 6 } } } };
  await (await page()).load();
  expect([posted.length, read, stored.size]).toEqual([0, 1, 0]);
});
