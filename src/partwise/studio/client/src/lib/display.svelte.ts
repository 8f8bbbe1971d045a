/** How the page is shown: theme and motion, each from the system until it is chosen here. */

export type Theme = "system" | "light" | "dark";
export type Motion = "system" | "off";

function read(key: string): string | null {
  try {
    return localStorage.getItem(`partwise.${key}`);
  } catch {
    return null;
  }
}

function write(key: string, value: string): void {
  try {
    localStorage.setItem(`partwise.${key}`, value);
  } catch {
    // Not kept: shown all the same.
  }
}

const saved = read("theme");
let theme = $state<Theme>(saved === "light" || saved === "dark" ? saved : "system");
let motion = $state<Motion>(read("motion") === "off" ? "off" : "system");
const dark = globalThis.matchMedia?.("(prefers-color-scheme: dark)");
const still = globalThis.matchMedia?.("(prefers-reduced-motion: reduce)");
let systemDark = $state(dark?.matches ?? false);
dark?.addEventListener("change", (event) => (systemDark = event.matches));

function apply(): void {
  const root = document.documentElement;
  if (theme === "system") delete root.dataset.theme;
  else root.dataset.theme = theme;
  if (motion === "off") root.dataset.motion = "off";
  else delete root.dataset.motion;
}

export const display = {
  get theme() {
    return theme;
  },
  set theme(value: Theme) {
    theme = value;
    write("theme", value);
    apply();
  },
  get motion() {
    return motion;
  },
  set motion(value: Motion) {
    motion = value;
    write("motion", value);
    apply();
  },
  /** What is really shown: read it in a drawing that has to follow the theme. */
  get isDark() {
    return theme === "system" ? systemDark : theme === "dark";
  },
  get moves() {
    return motion !== "off" && !(still?.matches ?? false);
  },
  apply,
};
