/** Answers that come line by line: each line is one JSON value. */
import { ApiError, ask, kept } from "../lib/api";
import { exported } from "../lib/exported";

interface Mistake {
  error?: { kind?: string; message?: string };
}

/** Calls `listen` with each line as it comes. An error on the way ends it. */
export async function lines<T extends object>(
  path: string,
  body: unknown,
  listen: (line: T) => void,
  signal: AbortSignal,
): Promise<void> {
  if (exported) {
    (kept("POST", path, body) as T[]).forEach(listen);
    return;
  }
  const answer = await ask("POST", path, body, signal);
  if (!answer.body) return;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    rest += value ?? "";
    const whole = rest.split("\n");
    rest = whole.pop() ?? "";
    for (const one of whole) {
      if (!one) continue;
      const line = JSON.parse(one) as T & Mistake;
      if (line.error) throw new ApiError(422, "lab", line.error.message ?? "");
      listen(line);
    }
    if (done) return;
  }
}
