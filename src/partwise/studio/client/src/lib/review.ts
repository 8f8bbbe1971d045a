/**
 * Spaced review: a question that was missed comes back, and again after longer and longer times.
 * A question that was right at once never enters; one that climbed all steps has left.
 */

export interface Answered {
  /** How often it was answered, here and in reviews. */
  tries: number;
  /** Whether the newest answer was right. */
  right: boolean;
  /** The step of the waiting times; null: not in review. */
  step: number | null;
  /** When it comes back, in unix seconds; null: not in review. */
  due: number | null;
  /** What was answered, to be shown again. */
  given?: unknown;
}

const DAY = 86_400;
/** Waiting times after a miss, then after each right answer in review. */
export const WAITS = [600, DAY, 3 * DAY, 7 * DAY, 21 * DAY] as const;

/** What is kept after an answer at `now` (unix seconds). */
export function after(before: Answered | null, right: boolean, now: number, given?: unknown): Answered {
  const tries = (before?.tries ?? 0) + 1;
  if (!right) return { tries, right, step: 0, due: now + WAITS[0], given };
  if (before?.step == null || before.due == null) return { tries, right, step: null, due: null, given };
  // A right answer before its time (a second try in the lesson) proves nothing yet.
  if (now < before.due) return { tries, right, step: before.step, due: before.due, given };
  const step = before.step + 1;
  const wait = WAITS[step];
  if (wait === undefined) return { tries, right, step: null, due: null, given };
  return { tries, right, step, due: now + wait, given };
}

export interface Card {
  lesson: string;
  cell: string;
  answered: Answered;
}

/** The questions whose time has come, the longest overdue first. */
export function due(cards: readonly Card[], now: number): Card[] {
  return cards
    .filter((card) => card.answered.due !== null && card.answered.due <= now)
    .sort((a, b) => a.answered.due! - b.answered.due! || a.cell.localeCompare(b.cell));
}

/** When the next one comes, or null where none waits. */
export function nextDue(cards: readonly Card[], now: number): number | null {
  const times = cards.map((card) => card.answered.due).filter((time) => time !== null && time > now);
  return times.length ? Math.min(...(times as number[])) : null;
}

/** An order of 0..length-1 that depends on the name alone, and is not the given one if it can be. */
export function shuffled(length: number, name: string): number[] {
  let state = 2166136261;
  for (const letter of name) state = Math.imul(state ^ letter.codePointAt(0)!, 16777619) >>> 0;
  const random = (): number => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
  const order = Array.from({ length }, (_, index) => index);
  for (let index = length - 1; index > 0; index -= 1) {
    const other = Math.floor(random() * (index + 1));
    [order[index], order[other]] = [order[other]!, order[index]!];
  }
  if (length > 1 && order.every((value, index) => value === index)) order.push(order.shift()!);
  return order;
}
