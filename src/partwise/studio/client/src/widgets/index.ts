/** The widgets of the lessons: one file each, named as a lesson names it, loaded when it is shown. */
import type { Component } from "svelte";

/** What every widget is given, beside the parameters that its cell in the lesson states. */
export interface WidgetProps {
  /** The id of the model that the reader picked ("tiny" or "run:NAME"). */
  model: string;
  /** The number of the lesson that shows it. */
  lesson: string;
  /** Its name in the reader's language. */
  label: string;
  [parameter: string]: unknown;
}

const files = import.meta.glob<{ default: Component<WidgetProps> }>("./*.svelte");

export function widget(name: string): (() => Promise<{ default: Component<WidgetProps> }>) | null {
  return files[`./${name}.svelte`] ?? null;
}
