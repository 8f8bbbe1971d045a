/** Answers that come line by line: each line is one JSON value. */
import { ApiError } from "../lib/api";
import { exported, requestName } from "../lib/exported";
import { language, t } from "../lib/i18n";

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
    const kept = exported.answers[requestName("POST", path, body)] as T[] | undefined;
    if (!kept) throw new ApiError(0, "static", t(STATIC));
    kept.forEach(listen);
    return;
  }
  const answer = await fetch(path, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Partwise-Language": language() },
    body: JSON.stringify(body),
    credentials: "same-origin",
    signal,
  });
  if (!answer.ok || !answer.body) {
    const found = (await answer.json().catch(() => ({}))) as Mistake;
    throw new ApiError(
      answer.status,
      found.error?.kind ?? "http",
      found.error?.message ?? `${answer.status} ${answer.statusText}`,
    );
  }
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

const STATIC = {
  zh: "这是导出的静态页面，此处需要运行中的 `partwise studio`。",
  en: "This is an exported page; this part needs a running `partwise studio`.",
};
