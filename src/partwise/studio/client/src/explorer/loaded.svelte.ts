/** A view that is being asked for: the last answer stays until the next one is there. */
import { sentence } from "../lib/api";
import { isGone } from "./data";

export class Loaded<T> {
  value = $state.raw<T | null>(null);
  waiting = $state(false);
  mistake = $state("");
  #asked = 0;

  constructor(private readonly gone?: () => void) {}

  /** Call it in an effect; it gives what ends the effect. */
  ask(promise: Promise<T>): () => void {
    const mine = (this.#asked += 1);
    this.waiting = true;
    promise.then(
      (found) => {
        if (mine !== this.#asked) return;
        this.value = found;
        this.waiting = false;
        this.mistake = "";
      },
      (error: unknown) => {
        if (mine !== this.#asked) return;
        this.waiting = false;
        if (isGone(error) && this.gone) this.gone();
        else this.mistake = sentence(error);
      },
    );
    return () => {
      if (mine === this.#asked) this.#asked += 1;
    };
  }
}
