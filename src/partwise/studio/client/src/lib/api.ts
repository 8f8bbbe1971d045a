/** Requests to the studio's own server, in the reader's language. */
import { exported, requestName } from "./exported";
import { language, t } from "./i18n";

/** An answer that is not what was asked for, with a sentence that a reader can use. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly kind: string,
    message: string,
  ) {
    super(message);
    this.name = "ApiError";
  }
}

const OFFLINE = {
  zh: "连不上服务器。运行 partwise studio 的终端还开着吗？",
  en: "The server does not answer. Is the terminal that runs partwise studio still open?",
};
const OTHER_SERVER = {
  zh: "服务器重新启动过。请用终端里新印出的地址打开。",
  en: "The server was started anew. Please open the address that its terminal shows.",
};
const STATIC = {
  zh: "这是导出的静态页面，这一部分要在 partwise studio 里才能用。",
  en: "This is an exported page; this part works in partwise studio alone.",
};

/** The answer as it comes; one that is not what was asked for is an ApiError. */
export async function ask(
  method: "GET" | "POST",
  path: string,
  body: unknown,
  signal?: AbortSignal,
): Promise<Response> {
  const headers: Record<string, string> = { "X-Partwise-Language": language() };
  if (method === "POST") headers["Content-Type"] = "application/json";
  let answer: Response;
  try {
    answer = await fetch(path, {
      method,
      headers,
      body: method === "POST" ? JSON.stringify(body ?? {}) : undefined,
      credentials: "same-origin",
      signal,
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, "offline", t(OFFLINE));
  }
  if (answer.ok) return answer;
  if (answer.status === 401) throw new ApiError(401, "token", t(OTHER_SERVER));
  let kind = "http";
  let message = `${answer.status} ${answer.statusText}`;
  try {
    const found = (await answer.json()) as { error?: { kind?: string; message?: string } };
    kind = found.error?.kind ?? kind;
    message = found.error?.message ?? message;
  } catch {
    // Not JSON: the status line says what is known.
  }
  throw new ApiError(answer.status, kind, message);
}

/** What a static export kept of an answer. */
export function kept(method: string, path: string, body?: unknown): unknown {
  const found = exported?.answers[requestName(method, path, body)];
  if (found === undefined) throw new ApiError(0, "static", t(STATIC));
  return found;
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  if (exported) return kept("GET", path) as T;
  return (await (await ask("GET", path, undefined, signal)).json()) as T;
}

export async function post<T>(path: string, body: unknown = {}, signal?: AbortSignal): Promise<T> {
  if (exported) return kept("POST", path, body) as T;
  return (await (await ask("POST", path, body, signal)).json()) as T;
}

/** Raw bytes, for tensors. In a static export they are kept as base64. */
export async function getBytes(path: string, signal?: AbortSignal): Promise<ArrayBuffer> {
  if (exported) {
    const text = atob(String(kept("GET", path)));
    return Uint8Array.from(text, (letter) => letter.charCodeAt(0)).buffer;
  }
  return (await ask("GET", path, undefined, signal)).arrayBuffer();
}

/** The sentence of any error, for a notice. */
export function sentence(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
