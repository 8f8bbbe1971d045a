/** The one connection of a tab: messages by type, channels by name, and coming back when it breaks. */
import { exported } from "./exported";
import { language } from "./i18n";

export interface Message {
  type: string;
  [key: string]: unknown;
}
export type Status = "connecting" | "open" | "closed" | "refused";
type Handler = (message: Message) => void;

const FIRST_WAIT = 500;
const LONGEST_WAIT = 8000;

let status = $state<Status>(exported ? "closed" : "connecting");
let socket: WebSocket | null = null;
let wait = FIRST_WAIT;
let timer: ReturnType<typeof setTimeout> | undefined;
let asked = 0;
let opened = 0;
const handlers = new Map<string, Set<Handler>>();
const watchers = new Map<string, Set<Handler>>();
const waiting = new Map<string, { done: (message: Message) => void; fail: (error: Error) => void }>();
const openers = new Set<() => void>();

function address(): string {
  const scheme = location.protocol === "https:" ? "wss:" : "ws:";
  return `${scheme}//${location.host}/api/socket`;
}

function deliver(message: Message): void {
  const ask = message["ask"];
  if (typeof ask === "string") {
    const one = waiting.get(ask);
    if (one) {
      waiting.delete(ask);
      if (message.type === "error") one.fail(new Error(String(message["message"])));
      else one.done(message);
      return;
    }
  }
  if (message.type === "event") {
    for (const handler of watchers.get(String(message["channel"])) ?? []) handler(message);
  }
  for (const handler of handlers.get(message.type) ?? []) handler(message);
}

function lost(): void {
  socket = null;
  status = "closed";
  for (const one of waiting.values()) one.fail(new Error("closed"));
  waiting.clear();
  clearTimeout(timer);
  timer = setTimeout(() => void connect(), wait);
  wait = Math.min(wait * 2, LONGEST_WAIT);
}

/** Opens the connection; called once by the app, and again by the reader's "reconnect". */
export async function connect(): Promise<void> {
  if (exported || socket) return;
  clearTimeout(timer);
  status = "connecting";
  if (opened > 0) {
    // A server that was started anew has another token: trying for ever would not help.
    try {
      const answer = await fetch("/api/state", { credentials: "same-origin" });
      if (answer.status === 401) {
        status = "refused";
        return;
      }
    } catch {
      lost();
      return;
    }
  }
  if (socket) return;
  const opening = new WebSocket(address());
  socket = opening;
  opening.onopen = () => {
    wait = FIRST_WAIT;
    opened += 1;
    status = "open";
    for (const channel of watchers.keys()) send({ type: "watch", channel });
    for (const opener of openers) opener();
  };
  opening.onmessage = (event) => deliver(JSON.parse(String(event.data)) as Message);
  opening.onclose = () => {
    if (socket === opening) {
      if (opened === 0) opened = 1;
      lost();
    }
  };
}

/** Sends a message; false where there is no connection (the page shows that itself). */
export function send(message: Message): boolean {
  if (socket?.readyState !== WebSocket.OPEN) return false;
  // What the server says to this tab is said in the language that the tab shows.
  socket.send(JSON.stringify({ language: language(), ...message }));
  return true;
}

/** Calls `handler` for every message of a type, until the function that it returns is called. */
export function on(type: string, handler: Handler): () => void {
  const set = handlers.get(type) ?? new Set();
  handlers.set(type, set.add(handler));
  return () => void set.delete(handler);
}

/** Calls `opener` each time that the connection is there (also at once, if it is). */
export function onOpen(opener: () => void): () => void {
  openers.add(opener);
  if (status === "open") opener();
  return () => void openers.delete(opener);
}

/** A name for one question, so that its answers can be told from others. */
export function newAsk(): string {
  asked += 1;
  return `${Date.now().toString(36)}-${asked}`;
}

/** One question, one answer: resolves with the first message that carries its `ask`. */
export function ask(message: Message): Promise<Message> {
  const name = newAsk();
  return new Promise((done, fail) => {
    waiting.set(name, { done, fail });
    if (!send({ ...message, ask: name })) {
      waiting.delete(name);
      fail(new Error("closed"));
    }
  });
}

/** Follows a channel ("jobs", "run:NAME", "ladder:NAME"); reconnecting takes it up again. */
export function watch(channel: string, handler: Handler): () => void {
  const set = watchers.get(channel) ?? new Set();
  if (set.size === 0) {
    watchers.set(channel, set);
    send({ type: "watch", channel });
  }
  set.add(handler);
  return () => {
    set.delete(handler);
    if (set.size === 0 && watchers.get(channel) === set) {
      watchers.delete(channel);
      send({ type: "unwatch", channel });
    }
  };
}

export const connection = {
  get status(): Status {
    return status;
  },
  /** How often the connection was made; more than once means that it was lost in between. */
  get times(): number {
    return opened;
  },
};
