import { expect, test } from "vitest";
import { chances } from "./chances";

const logits = Float32Array.from([1, 3, 2, -1]);

test("probabilities add up to one and keep the order", () => {
  const { of } = chances(logits, 0.7, 0);
  const all = [...logits].map(of);
  expect(all.reduce((sum, one) => sum + one, 0)).toBeCloseTo(1, 6);
  expect(all[1]).toBeGreaterThan(all[2]!);
  expect(all[1]! / all[2]!).toBeCloseTo(Math.exp(1 / 0.7), 5);
});

test("top-k leaves k", () => {
  const { of } = chances(logits, 1, 2);
  expect([...logits].map(of).filter((one) => one > 0)).toHaveLength(2);
});

test("temperature 0 takes the likeliest", () => {
  const { of, entropy } = chances(logits, 0, 0);
  expect([...logits].map(of)).toEqual([0, 1, 0, 0]);
  expect(entropy).toBe(0);
});

test("equal logits have the largest entropy", () => {
  expect(chances(Float32Array.from([2, 2, 2, 2]), 1, 0).entropy).toBeCloseTo(Math.log(4), 6);
});
