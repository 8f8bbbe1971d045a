/** A text and a model, read together: the state that the explorer and the lessons' widgets share. */
import { sentence } from "../lib/api";
import { readText, type Trace } from "./data";

export class Reader {
  trace = $state.raw<Trace | null>(null);
  waiting = $state(false);
  mistake = $state("");
  /** What stands in the text field; null until the server has found a text. */
  text = $state<string | null>(null);
  /** Whether the text is the reader's own; one that the server found follows the model. */
  #own: boolean;
  #read = "";
  #asked: AbortController | null = null;

  constructor(
    text: string | null = null,
    private readonly causal: boolean | null = null,
  ) {
    this.text = text;
    this.#own = text !== null;
  }

  /** Takes what the reader typed. */
  type(text: string): void {
    this.text = text;
    this.#own = true;
  }

  /** Reads the text with a model; what is asked for later replaces what was asked for before. */
  async read(model: string, text = this.#own ? this.text : null): Promise<void> {
    this.#asked?.abort();
    const mine = (this.#asked = new AbortController());
    this.waiting = true;
    try {
      const found = await readText(model, text, this.causal, mine.signal);
      if (mine.signal.aborted) return;
      this.trace = found;
      this.#read = model;
      if (text === null) this.text = found.text;
      this.mistake = "";
    } catch (error) {
      if (mine.signal.aborted) return;
      this.mistake = sentence(error);
      // Another model's numbers must not stand under this one's name.
      if (this.#read !== model) this.trace = null;
    } finally {
      if (this.#asked === mine) this.waiting = false;
    }
  }
}
