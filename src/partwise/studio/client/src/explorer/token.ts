/** How a token is written so that a reader sees all of it. */
import type { Token } from "./data";

const SIGNS: Record<string, string> = { " ": "␣", "\n": "↵", "\t": "⇥", "\r": "␍", "\u3000": "□" };

/** A token on the screen: spaces and line ends as signs, lone bytes and control characters as numbers. */
export function seen(token: Token): string {
  if (token.bytes !== undefined) return `⟨${token.bytes.toUpperCase()}⟩`;
  if (token.text === "") return `#${token.id}`;
  return token.text
    .replace(/[ \n\t\r\u3000]/g, (sign) => SIGNS[sign] ?? sign)
    .replace(/\p{Cc}/gu, (sign) => `⟨${sign.codePointAt(0)!.toString(16).toUpperCase().padStart(2, "0")}⟩`);
}

/** At most about `most` marks along an axis of `count` places, evenly spread. */
export function every(count: number, most: number): number[] {
  const step = Math.max(1, Math.ceil(count / Math.max(1, most)));
  const places: number[] = [];
  for (let place = 0; place < count; place += step) places.push(place);
  return places;
}

/** 0.7312 as 73.1 %, small ones with two figures. */
export function percent(share: number | null): string {
  if (share === null || !Number.isFinite(share)) return "–";
  const hundred = 100 * share;
  if (hundred > 0 && hundred < 0.01) return "<0.01%";
  return `${hundred >= 10 ? hundred.toFixed(1) : hundred.toFixed(2)}%`;
}

/** Where a scale of attention weights ends, so that a single 1 does not make all others pale. */
export function mostWeight(weights: ArrayLike<number>): number {
  const there = Array.from(weights).filter((weight) => weight > 0);
  there.sort((a, b) => a - b);
  return there[Math.floor(0.98 * (there.length - 1))] ?? 1;
}
