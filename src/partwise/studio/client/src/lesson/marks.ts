/** How far a lesson is, counted from what was kept. */
import { exported } from "../lib/exported";
import { answered, passed } from "../lib/progress";
import type { Lesson, LessonRow } from "../lib/types";

export interface Part {
  cell: string;
  kind: "quiz" | "exercise";
  done: boolean;
}

/** The questions and exercises of a lesson, in order. */
export function partsOf(lesson: Lesson): Part[] {
  return lesson.cells.flatMap((cell): Part[] => {
    // A static page has no Python to check code with.
    if (exported && (cell.kind === "code" || (cell.kind === "quiz" && cell.quiz === "code"))) return [];
    if (cell.kind === "quiz") {
      return [{ cell: cell.id, kind: "quiz", done: answered(lesson.number, cell.id)?.right ?? false }];
    }
    if (cell.kind === "code" && cell.checked && cell.exercise) {
      return [{ cell: cell.id, kind: "exercise", done: passed(lesson.number, cell.id) }];
    }
    return [];
  });
}

export interface Progress {
  done: number;
  total: number;
  begun: boolean;
}

/** The same for a row of the contents, which knows only the names of these cells. */
export function progressOf(row: LessonRow): Progress {
  const quizzes = row.parts?.quizzes ?? [];
  const exercises = row.parts?.exercises ?? [];
  const right = quizzes.filter((cell) => answered(row.number, cell)?.right).length;
  const solved = exercises.filter((cell) => passed(row.number, cell)).length;
  const tried = quizzes.some((cell) => answered(row.number, cell) !== null);
  return {
    done: right + solved,
    total: quizzes.length + exercises.length,
    begun: tried || right + solved > 0,
  };
}
