/** Numbers as the charts write them. */
import { format } from "d3-format";

const short = format(".3~s");
const plain = format(".4~r");

/** Four significant digits, a true minus sign, powers of ten only where they help. */
export function figure(value: number): string {
  if (!Number.isFinite(value)) {
    return Number.isNaN(value) ? "NaN" : value > 0 ? "∞" : "−∞";
  }
  const size = Math.abs(value);
  if (value === 0) return "0";
  if (size >= 1e5 || size < 1e-3) {
    return value
      .toExponential(2)
      .replace(/\.?0+e/, "e")
      .replace("e+", "e")
      .replaceAll("-", "−");
  }
  return plain(value).replaceAll("-", "−");
}

/** For the ticks of an axis: 1.5k, 2M. */
export function tick(value: number): string {
  const size = Math.abs(value);
  if (size >= 1e4 && size < 1e15) return short(value).replaceAll("-", "−");
  return figure(value);
}

/** The y of a line at x, between its points; null outside of them. Points are sorted by x. */
export function at(points: readonly (readonly [number, number])[], x: number): number | null {
  const last = points.length - 1;
  if (last < 0 || x < points[0]![0] || x > points[last]![0]) return null;
  let low = 0;
  let high = last;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (points[middle]![0] <= x) low = middle;
    else high = middle;
  }
  const [x0, y0] = points[low]!;
  const [x1, y1] = points[high]!;
  if (x1 === x0) return y0;
  return y0 + ((y1 - y0) * (x - x0)) / (x1 - x0);
}

/** At most `limit` points that keep each stretch's lowest and highest, in the order of x. */
export function thinned(
  points: readonly (readonly [number, number])[],
  limit: number,
): (readonly [number, number])[] {
  if (points.length <= limit) return [...points];
  const kept: (readonly [number, number])[] = [];
  const stretch = points.length / (limit / 2);
  for (let start = 0; start < points.length; start += stretch) {
    const part = points.slice(Math.floor(start), Math.floor(start + stretch));
    if (part.length === 0) continue;
    let low = 0;
    let high = 0;
    for (const [index, point] of part.entries()) {
      if (point[1] < part[low]![1]) low = index;
      if (point[1] > part[high]![1]) high = index;
    }
    const [first, second] = low < high ? [low, high] : [high, low];
    kept.push(part[first]!);
    if (second !== first) kept.push(part[second]!);
  }
  return kept;
}

export interface Statistics {
  low: number;
  high: number;
  mean: number;
  deviation: number;
  /** How many values are no finite numbers. */
  broken: number;
}

export function statistics(values: ArrayLike<number>): Statistics {
  let low = Infinity;
  let high = -Infinity;
  let sum = 0;
  let broken = 0;
  for (let index = 0; index < values.length; index += 1) {
    const value = values[index]!;
    if (!Number.isFinite(value)) {
      broken += 1;
      continue;
    }
    if (value < low) low = value;
    if (value > high) high = value;
    sum += value;
  }
  const finite = values.length - broken;
  const mean = finite ? sum / finite : NaN;
  let squares = 0;
  for (let index = 0; index < values.length; index += 1) {
    const value = values[index]!;
    if (Number.isFinite(value)) squares += (value - mean) ** 2;
  }
  return {
    low: finite ? low : NaN,
    high: finite ? high : NaN,
    mean,
    deviation: finite ? Math.sqrt(squares / finite) : NaN,
    broken,
  };
}
