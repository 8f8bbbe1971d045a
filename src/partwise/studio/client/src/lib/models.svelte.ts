/** The models that can be picked, and which one is. */
import { get, post, sentence } from "./api";
import { exported } from "./exported";
import { watch } from "./socket";
import type { Model } from "./types";

const KEY = "partwise.model";

function remembered(): string {
  try {
    return localStorage.getItem(KEY) ?? "tiny";
  } catch {
    return "tiny";
  }
}

let list = $state<Model[]>([]);
let loaded = $state(false);
let problem = $state<string | null>(null);
let picked = $state(exported ? "tiny" : remembered());
let training = $state<{ done: number | null; text: string } | null>(null);

/** Reads the list again: after a training ended, and when a page opens. */
export async function refresh(): Promise<void> {
  try {
    list = await get<Model[]>("/api/models");
    problem = null;
    if (list.length && !list.some((model) => model.id === picked)) picked = "tiny";
  } catch (error) {
    problem = sentence(error);
  } finally {
    loaded = true;
  }
}

interface Job {
  id: string;
  kind?: string;
  state?: string;
  step?: number;
  steps?: number;
  error?: string | null;
}

/** Trains the tiny model on the spot; the list is read again when it is there. */
export async function trainTiny(): Promise<void> {
  if (training) return;
  training = { done: null, text: "" };
  let stop: (() => void) | undefined;
  try {
    const job = await post<Job>("/api/models/tiny");
    await new Promise<void>((done, fail) => {
      const look = (now: Job | undefined): void => {
        if (!now || now.id !== job.id) return;
        if (now.step !== undefined && now.steps) training = { done: now.step / now.steps, text: "" };
        if (now.state === "failed") fail(new Error(now.error ?? "failed"));
        else if (now.state && now.state !== "running" && now.state !== "waiting") done();
      };
      look(job);
      stop = watch("jobs", (message) => {
        const all = message["jobs"];
        if (Array.isArray(all)) for (const one of all) look(one as Job);
        else look((message["job"] ?? message) as Job);
      });
      // Whoever misses the message finds the model in the list.
      const timer = setInterval(async () => {
        await refresh();
        if (list.find((model) => model.id === "tiny")?.ready) {
          clearInterval(timer);
          done();
        }
      }, 1500);
    });
  } catch (error) {
    problem = sentence(error);
  } finally {
    stop?.();
    training = null;
    await refresh();
  }
}

export const models = {
  get list() {
    return list;
  },
  get loaded() {
    return loaded;
  },
  get problem() {
    return problem;
  },
  get training() {
    return training;
  },
  get picked() {
    return picked;
  },
  set picked(id: string) {
    picked = id;
    try {
      localStorage.setItem(KEY, id);
    } catch {
      // The choice holds for this page.
    }
  },
  get current(): Model | undefined {
    return list.find((model) => model.id === picked);
  },
};
