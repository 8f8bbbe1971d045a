/** The ladder as the server tells of it. */
export interface Change {
  config: string;
  field: string;
  before: unknown;
  after: unknown;
  text: string;
}

export interface Rung {
  rung: number;
  name: string;
  adds: string;
  published: number | null;
  changes?: Change[];
  definition?: Record<string, unknown>;
}

export interface Row {
  rung: number;
  name: string;
  variant: string | null;
  seed: number;
  steps: number;
  seconds: number;
  parameters: number;
  train_loss: number;
  val_loss: number;
  best_val_loss: number;
  estimate: number;
  published: number | null;
  run: string;
}

export interface Difference {
  rung: number;
  variant: string | null;
  against: number;
  seeds: number[];
  mean: number;
  sd: number | null;
  standard_error: number | null;
  low: number;
  high: number;
  verdict: string;
}

export interface Table {
  corpus: string;
  rungs: Row[];
  differences: Difference[];
  knock_outs: { rung: number; seed: number; part: string; val_loss: number; difference: number }[];
  failures: { rung: number; variant: string | null; seed: number; reason: string }[];
}

export interface Ladder {
  name: string;
  runs: string[];
  table: Table | null;
  labels?: Record<string, string>;
}

/** "rung-2-without-residual-seed-1" -> its rung, its variant in a few letters, and its seed. */
export function runOf(name: string): { rung: number; variant: string; seed: number } | null {
  const found = /^rung-(\d+)-(?:(.+)-)?seed-(\d+)$/.exec(name);
  if (!found) return null;
  return { rung: Number(found[1]), variant: found[2] ?? "", seed: Number(found[3]) };
}

/** Rows of one rung and variant together: their mean and standard deviation over seeds. */
export interface Group {
  rung: number;
  name: string;
  variant: string | null;
  seeds: number;
  mean: number;
  deviation: number | null;
  trainMean: number;
  seconds: number;
  parameters: number;
  published: number | null;
}

export function groups(rows: readonly Row[]): Group[] {
  const found = new Map<string, Row[]>();
  for (const row of rows) {
    const key = `${row.rung}|${row.variant ?? ""}`;
    found.set(key, [...(found.get(key) ?? []), row]);
  }
  return [...found.values()].map((all) => {
    const first = all[0]!;
    const mean = average(all.map((row) => row.val_loss));
    const squares = all.reduce((sum, row) => sum + (row.val_loss - mean) ** 2, 0);
    return {
      rung: first.rung,
      name: first.name,
      variant: first.variant,
      seeds: all.length,
      mean,
      deviation: all.length > 1 ? Math.sqrt(squares / (all.length - 1)) : null,
      trainMean: average(all.map((row) => row.train_loss)),
      seconds: average(all.map((row) => row.seconds)),
      parameters: first.parameters,
      published: first.published,
    };
  });
}

function average(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
