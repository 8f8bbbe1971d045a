/** The switches of the deep stack, as the labs name them. */
import type { Pair } from "../lib/i18n";

export type StackNorm = "none" | "pre" | "post";
export type Initialisation = "fan_in" | "normal" | "gpt2";

export const NORMS: readonly { value: StackNorm; label: Pair }[] = [
  { value: "none", label: { zh: "无归一化", en: "no norm" } },
  { value: "pre", label: { zh: "pre-norm", en: "pre-norm" } },
  { value: "post", label: { zh: "post-norm", en: "post-norm" } },
];

export const INITIALISATIONS: readonly { value: Initialisation; label: Pair }[] = [
  { value: "fan_in", label: { zh: "按输入宽度", en: "by fan-in" } },
  { value: "normal", label: { zh: "标准差 0.02", en: "std 0.02" } },
  { value: "gpt2", label: { zh: "GPT-2", en: "GPT-2" } },
];

export function nameOf<T extends string>(
  options: readonly { value: T; label: Pair }[],
  value: T,
): Pair {
  return options.find((one) => one.value === value)!.label;
}
