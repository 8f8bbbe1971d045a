import { describe, expect, test } from "vitest";
import { after, type Answered, due, nextDue, shuffled, WAITS } from "./review";

const DAY = 86_400;

describe("spaced review", () => {
  test("a question that was right at once never comes back", () => {
    expect(after(null, true, 0)).toMatchObject({ tries: 1, right: true, step: null, due: null });
  });

  test("a missed one waits, and waits longer after each right answer", () => {
    let state: Answered = after(null, false, 0);
    let now = 0;
    const waited: number[] = [];
    while (state.due !== null) {
      waited.push(state.due - now);
      now = state.due;
      state = after(state, true, now);
    }
    expect(waited).toEqual([...WAITS]);
    expect(waited).toEqual([...waited].sort((a, b) => a - b));
  });

  test("a right answer before its time changes nothing but the verdict", () => {
    const missed = after(null, false, 0);
    const again = after(missed, true, 30);
    expect(again).toMatchObject({ right: true, step: 0, due: missed.due, tries: 2 });
  });

  test("a miss on any step starts again", () => {
    const far: Answered = { tries: 4, right: true, step: 3, due: 10 * DAY };
    expect(after(far, false, 10 * DAY)).toMatchObject({ step: 0, due: 10 * DAY + WAITS[0] });
  });

  test("what is due comes longest overdue first, and the next one is told", () => {
    const card = (cell: string, at: number | null) => ({
      lesson: "05",
      cell,
      answered: { tries: 1, right: false, step: 0, due: at },
    });
    const cards = [card("a", 90), card("b", 10), card("c", 200), card("d", null)];
    expect(due(cards, 100).map((one) => one.cell)).toEqual(["b", "a"]);
    expect(nextDue(cards, 100)).toBe(200);
    expect(nextDue(cards, 200)).toBeNull();
  });
});

describe("the order of options", () => {
  test("holds every one once, depends on the name alone, and is not the given order", () => {
    for (let length = 2; length < 9; length += 1) {
      for (const name of ["06.5 q1", "06.5 q2", "问题"]) {
        const order = shuffled(length, name);
        expect([...order].sort((a, b) => a - b)).toEqual(order.map((_, index) => index));
        expect(order).toEqual(shuffled(length, name));
        expect(order).not.toEqual(order.map((_, index) => index));
      }
    }
    expect(shuffled(1, "x")).toEqual([0]);
    expect(shuffled(0, "x")).toEqual([]);
  });
});
