/** How series are told apart without colour: each has its own dash and its own mark. */

const DASHES = ["", "7 3", "2 3", "9 3 2 3", "", "5 2", "1 3", "11 4"] as const;

export function colour(index: number): string {
  return `var(--series-${(index % 8) + 1})`;
}

export function dash(index: number, dashed?: boolean): string {
  if (dashed !== undefined) return dashed ? "6 4" : "";
  return DASHES[index % DASHES.length]!;
}

const SHAPES = [
  "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0",
  "M-3.2-3.2h6.4v6.4h-6.4z",
  "M0-4.2L4 3H-4z",
  "M0-4.4L4.4 0 0 4.4-4.4 0z",
  "M-3.4-3.4L3.4 3.4M3.4-3.4L-3.4 3.4",
  "M0 4.2L4-3H-4z",
  "M0-4.2V4.2M-4.2 0H4.2",
  "M-4.2-1.2h8.4v2.4h-8.4z",
] as const;

export function mark(index: number): string {
  return SHAPES[index % SHAPES.length]!;
}
