/** Questions that follow the controls: asked a moment after the last change, the latest alone. */
import { untrack } from "svelte";
import { post, sentence } from "../lib/api";

const WAIT = 120;

/** Call it in an effect, which it gives the end of. */
export function settled<T>(
  path: string,
  body: unknown,
  found: (answer: T) => void,
  failed: (mistake: string) => void,
): () => void {
  const signal = new AbortController();
  const timer = setTimeout(async () => {
    try {
      found(await post<T>(path, body, signal.signal));
      failed("");
    } catch (error) {
      if (!signal.signal.aborted) failed(untrack(() => sentence(error)));
    }
  }, WAIT);
  return () => {
    clearTimeout(timer);
    signal.abort();
  };
}
