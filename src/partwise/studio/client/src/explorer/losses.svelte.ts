/** A model's loss with parts of it silent: asked for one by one, each once. */
import { ApiError, post, sentence } from "../lib/api";
import { models } from "../lib/models";

export interface PartOf {
  id: string;
  label: string;
  kind: string;
  layer: number | null;
  head: number | null;
}

export interface Without {
  ladder: string;
  corpus: string;
  rung: number;
  name: string;
  part: string;
  with: number;
  without: number;
  difference: number;
  seeds: number;
}

export interface Parts {
  loss: number;
  tokens: number;
  text: string;
  parts: PartOf[];
  without: Without[];
}

export class Losses {
  known = $state.raw<Parts | null>(null);
  waiting = $state(false);
  mistake = $state("");
  /** The model has no validation text: the reader has to type one. */
  needsText = $state(false);
  /** Names of silent parts, joined by spaces -> loss. */
  found = $state.raw<Record<string, number>>({});
  #model = "";
  #text: string | null = null;
  #signal = new AbortController();

  async start(model: string, text: string | null = null): Promise<void> {
    this.stop();
    const signal = (this.#signal = new AbortController());
    this.#model = model;
    this.#text = text;
    this.known = null;
    this.found = {};
    this.mistake = "";
    // What was never judged on a text of its own, such as an imported model, has none to be judged on.
    this.needsText = text !== null || models.list.find((one) => one.id === model)?.val_loss === null;
    if (text === null && this.needsText) return;
    this.waiting = true;
    try {
      const known = await post<Parts>("/api/parts", this.#body({}), signal.signal);
      if (signal.signal.aborted) return;
      this.known = known;
    } catch (error) {
      if (signal.signal.aborted) return;
      if (error instanceof ApiError && error.kind === "text" && text === null) this.needsText = true;
      this.mistake = sentence(error);
    } finally {
      if (this.#signal === signal) this.waiting = false;
    }
  }

  stop(): void {
    this.#signal.abort();
    this.waiting = false;
  }

  loss(parts: readonly string[]): number | undefined {
    return parts.length ? this.found[name(parts)] : this.known?.loss;
  }

  /** Measures each of some sets of parts in turn; what is known already is not measured again. */
  async measure(sets: readonly (readonly string[])[]): Promise<void> {
    // What was stopped goes on when more is asked for.
    if (this.#signal.signal.aborted) this.#signal = new AbortController();
    const { signal } = this.#signal;
    this.waiting = true;
    try {
      for (const parts of sets) {
        if (signal.aborted || this.loss(parts) !== undefined) continue;
        const answer = await post<{ loss: number }>("/api/silence", this.#body({ parts }), signal);
        if (signal.aborted) return;
        this.found = { ...this.found, [name(parts)]: answer.loss };
      }
    } catch (error) {
      if (!signal.aborted) this.mistake = sentence(error);
    } finally {
      if (this.#signal.signal === signal) this.waiting = false;
    }
  }

  #body(more: object): object {
    return { model: this.#model, ...(this.#text === null ? {} : { text: this.#text }), ...more };
  }
}

function name(parts: readonly string[]): string {
  return [...parts].sort().join(" ");
}
