/** One lesson's kernel as the page sees it: its state, what runs, what waits, what each cell showed. */
import { exported } from "./exported";
import { t } from "./i18n";
import { append } from "./output";
import { ask, on, onOpen, send, type Message } from "./socket";
import type { Output } from "./types";

export type KernelState = "off" | "starting" | "idle" | "busy" | "dead";
export type CellStatus = "ready" | "waiting" | "running" | "ok" | "error" | "interrupted";

export interface CellView {
  status: CellStatus;
  outputs: Output[];
  seconds: number | null;
  /** Counts the runs of the lesson, as a notebook does. */
  run: number | null;
  check: { passed: boolean; messages: unknown[] } | null;
}
interface Wanted {
  cell: string;
  code: string;
  model: string;
  check: boolean;
}
export interface Match {
  text: string;
  type: string;
}

const cut = (left: number): string =>
  t({ zh: "……（省略 {n} 个字符）……", en: "… ({n} characters left out) …" }, { n: left });

export class Kernel {
  state = $state<KernelState>("off");
  reason = $state<string | null>(null);
  cells = $state<Record<string, CellView>>({});
  waiting = $state<Wanted[]>([]);
  running = $state<string | null>(null);
  private runs = 0;
  private pending: { cell: string; output: Output }[] = [];
  private frame = 0;
  private ends: (() => void)[] = [];
  private finished = new Map<string, (view: CellView) => void>();

  constructor(readonly lesson: string) {}

  /** Begins to listen; returns what ends it. */
  open(model: () => string): () => void {
    for (const [cell, outputs] of Object.entries(exported?.outputs[this.lesson] ?? {})) {
      this.view(cell).outputs = outputs as Output[];
    }
    const mine =
      (handler: (message: Message) => void) =>
      (message: Message): void => {
        if (message["lesson"] === this.lesson) handler(message);
      };
    this.ends = [
      on("kernel.state", mine((message) => this.changed(message))),
      on("kernel.output", mine((message) => this.showed(message))),
      on("kernel.done", mine((message) => this.done(message))),
      on("kernel.cell", mine((message) => this.recalled(message))),
      on("error", mine((message) => this.failed(message))),
      onOpen(() => this.reopened(model())),
    ];
    return () => {
      for (const end of this.ends) end();
      cancelAnimationFrame(this.frame);
      send({ type: "kernel.close", lesson: this.lesson });
    };
  }

  view(cell: string): CellView {
    return (this.cells[cell] ??= {
      status: "ready",
      outputs: [],
      seconds: null,
      run: null,
      check: null,
    });
  }

  /** Runs code in a cell's name, after what already waits. Resolves when it ended. */
  run(cell: string, code: string, model: string, check = false): Promise<CellView> {
    const view = this.view(cell);
    if (view.status === "waiting" || view.status === "running") return Promise.resolve(view);
    view.status = "waiting";
    this.waiting.push({ cell, code, model, check });
    return new Promise((resolve) => {
      this.finished.set(cell, resolve);
      this.next();
    });
  }

  /** Stops what runs and forgets what waits. */
  interrupt(): void {
    for (const wanted of this.waiting) this.ended(wanted.cell, "interrupted");
    this.waiting = [];
    send({ type: "kernel.interrupt", lesson: this.lesson });
  }

  restart(): void {
    for (const wanted of this.waiting) this.ended(wanted.cell, "interrupted");
    this.waiting = [];
    this.runs = 0;
    send({ type: "kernel.restart", lesson: this.lesson });
  }

  async complete(
    code: string,
    cursor: number,
  ): Promise<{ start: number; end: number; matches: Match[] } | null> {
    try {
      const answer = await ask({ type: "kernel.complete", lesson: this.lesson, code, cursor });
      return answer as unknown as { start: number; end: number; matches: Match[] };
    } catch {
      return null;
    }
  }

  clear(cell: string): void {
    const view = this.view(cell);
    view.outputs = [];
    view.check = null;
    view.seconds = null;
    if (view.status !== "running" && view.status !== "waiting") view.status = "ready";
  }

  private next(): void {
    if (this.running !== null) return;
    const wanted = this.waiting.shift();
    if (!wanted) return;
    this.clear(wanted.cell);
    const type = wanted.check ? "kernel.check" : "kernel.run";
    const { cell, code, model } = wanted;
    if (!send({ type, lesson: this.lesson, cell, code, model })) {
      const view = this.view(cell);
      append(
        view.outputs,
        {
          kind: "error",
          name: t({ zh: "没有连接", en: "No connection" }),
          value: t({ zh: "服务器连不上，这一格没有运行。", en: "the server cannot be reached; the cell was not run" }),
          line: null,
          traceback: [],
        },
        cut,
      );
      this.ended(cell, "error");
      this.next();
      return;
    }
    this.running = cell;
    this.runs += 1;
    const view = this.view(cell);
    view.status = "running";
    view.run = this.runs;
  }

  /** The connection is there (again): what was under way on an older one is told anew. */
  private reopened(model: string): void {
    for (const wanted of this.waiting) this.ended(wanted.cell, "interrupted");
    this.waiting = [];
    if (this.running !== null) this.ended(this.running, "interrupted");
    this.running = null;
    send({ type: "kernel.open", lesson: this.lesson, model });
  }

  /** What a cell showed before this page was there: the kernel outlives a reload. */
  private recalled(message: Message): void {
    const cell = String(message["cell"]);
    this.clear(cell);
    const view = this.view(cell);
    for (const output of message["outputs"] as Output[]) append(view.outputs, output, cut);
    const done = message["done"] as Message | null;
    if (done) {
      view.status = done["status"] as CellStatus;
      view.seconds = (done["seconds"] as number | undefined) ?? null;
      view.check = (done["check"] as CellView["check"] | undefined) ?? null;
    } else {
      view.status = "running";
      this.running = cell;
    }
  }

  /** A request that the server could not carry out. */
  private failed(message: Message): void {
    const cell = message["cell"];
    if (typeof cell !== "string" || !(cell in this.cells)) {
      this.reason = String(message["message"]);
      return;
    }
    const name = t({ zh: "没有运行", en: "Not run" });
    const value = String(message["message"]);
    append(this.view(cell).outputs, { kind: "error", name, value, line: null, traceback: [] }, cut);
    this.ended(cell, "error");
    if (this.running === cell) this.running = null;
    this.next();
  }

  private changed(message: Message): void {
    this.state = message["state"] as KernelState;
    this.reason = (message["reason"] as string | null | undefined) ?? null;
    if (this.state === "dead") {
      // Nothing that ran or waited will report any more.
      this.settle();
      for (const wanted of this.waiting) this.ended(wanted.cell, "interrupted");
      this.waiting = [];
      if (this.running !== null) this.ended(this.running, "error");
      this.running = null;
    }
  }

  private showed(message: Message): void {
    // A flood of output is drawn once a frame.
    const cell = String(message["cell"]);
    if (this.running === null && this.state === "busy") {
      // Another tab runs this cell of the shared kernel.
      this.clear(cell);
      this.view(cell).status = "running";
      this.running = cell;
    }
    this.pending.push({
      cell,
      output: message["output"] as Output,
    });
    this.frame ||= requestAnimationFrame(() => this.settle());
  }

  private settle(): void {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    for (const { cell, output } of this.pending) {
      if (output.kind === "check") this.view(cell).check = output;
      else append(this.view(cell).outputs, output, cut);
    }
    this.pending = [];
  }

  private done(message: Message): void {
    this.settle();
    const cell = String(message["cell"]);
    const view = this.view(cell);
    view.seconds = (message["seconds"] as number | undefined) ?? null;
    const check = message["check"] as CellView["check"] | undefined;
    if (check) view.check = check;
    const status = message["status"] as CellStatus;
    this.ended(cell, status);
    if (this.running === cell) this.running = null;
    if (status !== "ok") {
      // What waits builds upon a cell that did not come to its end.
      for (const wanted of this.waiting) this.ended(wanted.cell, "interrupted");
      this.waiting = [];
    }
    this.next();
  }

  private ended(cell: string, status: CellStatus): void {
    const view = this.view(cell);
    view.status = status;
    this.finished.get(cell)?.(view);
    this.finished.delete(cell);
  }
}
