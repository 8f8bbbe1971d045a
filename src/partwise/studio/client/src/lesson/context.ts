/** What the cells of one lesson share. */
import { getContext, setContext } from "svelte";
import type { Kernel } from "../lib/kernel.svelte";

export interface LessonContext {
  number: string;
  kernel: Kernel;
  model: () => string;
  /** Cells report their code, so that all above one can be run. */
  code: Map<string, () => string>;
  runAbove: (cell: string) => void;
  goOn: (cell: string) => void;
}

const KEY = Symbol("lesson");

export function provide(context: LessonContext): LessonContext {
  return setContext(KEY, context);
}

export function lessonContext(): LessonContext {
  return getContext<LessonContext>(KEY);
}
