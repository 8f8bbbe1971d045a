/** The lesson as the server sends it. */
import type { Pair } from "./i18n";

export interface MarkdownCell extends Pair {
  kind: "md";
  id: string;
}
export interface FormulaCell {
  kind: "formula";
  id: string;
  latex: string;
  code: string;
  caption?: Pair | null;
}
export interface CodeCell {
  kind: "code";
  id: string;
  code: string;
  hash: string;
  exercise: boolean;
  checked: boolean;
}
export interface Option extends Pair {
  right?: boolean;
  feedback?: Pair | null;
}
export interface QuizCell {
  kind: "quiz";
  id: string;
  quiz: "choice" | "many" | "order" | "number" | "code";
  question: Pair;
  options?: Option[];
  items?: Option[];
  answer?: number | null;
  tolerance?: number;
  feedback?: { right?: Pair | null; wrong?: Pair | null } | null;
  start?: string;
  hash?: string;
}
export interface WidgetCell {
  kind: "widget";
  id: string;
  name: string;
  props: Record<string, unknown>;
  label: Pair;
}
export interface ReadingCell {
  kind: "reading";
  id: string;
  items: { title: string; where: string; look: Pair }[];
}
export type Cell = MarkdownCell | FormulaCell | CodeCell | QuizCell | WidgetCell | ReadingCell;

export interface LessonRow {
  number: string;
  id: string;
  title: Pair;
  minutes: number;
  parts?: { quizzes?: string[]; exercises?: string[] };
}
export interface Lesson {
  number: string;
  id: string;
  minutes: number;
  title: Pair;
  previous?: LessonRow | null;
  next?: LessonRow | null;
  cells: Cell[];
}
export interface State {
  version: string;
  language: "zh" | "en";
  lessons: LessonRow[];
  features?: Record<string, unknown>;
}

export type Output =
  | { kind: "stream"; name: string; text: string }
  | { kind: "image"; mime: string; data: string }
  | { kind: "html"; html: string }
  | { kind: "text"; text: string }
  | { kind: "error"; name: string; value: string; line: number | null; traceback: string[] }
  | { kind: "check"; passed: boolean; messages: (string | Pair)[] };

export interface Model {
  id: string;
  name: string;
  layers: number;
  heads: number;
  d_model: number;
  context_length: number;
  vocab_size: number;
  parameters: number;
  val_loss: number | null;
  ready: boolean;
  tokenizer: string;
}
