/** The curves of runs, as their metrics files grow. */
import { watch } from "../lib/socket";

type Point = [number, number];

export interface Curve {
  run: string;
  loss: Point[];
  valLoss: Point[];
  step: number;
  seconds: number;
  tokensPerSecond: number | null;
  best: number | null;
  finished: string | null;
}

interface Line {
  event: "step" | "evaluation" | "finished" | string;
  step?: number;
  loss?: number | null;
  val_loss?: number | null;
  best_val_loss?: number | null;
  seconds?: number;
  tokens_per_second?: number;
  reason?: string;
}

function empty(run: string): Curve {
  return {
    run,
    loss: [],
    valLoss: [],
    step: 0,
    seconds: 0,
    tokensPerSecond: null,
    best: null,
    finished: null,
  };
}

function add(curve: Curve, line: Line): void {
  const step = line.step ?? curve.step;
  curve.step = step;
  curve.seconds = line.seconds ?? curve.seconds;
  if (line.event === "step") {
    curve.loss.push([step, line.loss ?? NaN]);
    curve.tokensPerSecond = line.tokens_per_second ?? curve.tokensPerSecond;
    curve.finished = null;
  } else if (line.val_loss !== undefined) {
    // A run that was stopped before its first evaluation ends without one.
    const unmeasured = line.event === "finished" && line.val_loss === null;
    if (!unmeasured && curve.valLoss.at(-1)?.[0] !== step) {
      curve.valLoss.push([step, line.val_loss ?? NaN]);
    }
    curve.best = line.best_val_loss ?? curve.best;
    if (line.event === "finished") curve.finished = line.reason ?? "";
  }
}

/** Follows "run:NAME" or "ladder:NAME"; `curves` holds one for each run of it, by name. */
export function followCurves(channel: string): { readonly curves: Curve[]; close: () => void } {
  const known = $state<Record<string, Curve>>({});
  const close = watch(channel, (message) => {
    const run = String(message["run"]);
    if (message["reset"] || !(run in known)) known[run] = empty(run);
    for (const line of (message["lines"] as Line[] | undefined) ?? []) add(known[run]!, line);
  });
  return {
    get curves() {
      return Object.values(known).sort((a, b) => a.run.localeCompare(b.run));
    },
    close,
  };
}
