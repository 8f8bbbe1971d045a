/** Amounts as the training pages say them. */
import { t, type Pair } from "../lib/i18n";

export function duration(seconds: number): string {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds < 90) return t({ zh: "{n} 秒", en: "{n} s" }, { n: Math.round(seconds) });
  if (seconds < 5400) {
    return t({ zh: "{n} 分钟", en: "{n} min" }, { n: (seconds / 60).toFixed(1) });
  }
  return t({ zh: "{n} 小时", en: "{n} h" }, { n: (seconds / 3600).toFixed(1) });
}

export function bytes(size: number): string {
  if (size < 1000) return `${size} B`;
  if (size < 1e6) return `${(size / 1e3).toFixed(0)} KB`;
  return `${(size / 1e6).toFixed(1)} MB`;
}

/** 44123 -> 44.1K. */
export function rough(value: number): string {
  if (value < 1e4) return String(Math.round(value));
  if (value < 1e6) return `${(value / 1e3).toFixed(1)}K`;
  return `${(value / 1e6).toFixed(2)}M`;
}

export const STATES: Record<string, Pair> = {
  running: { zh: "进行中", en: "running" },
  done: { zh: "完成", en: "finished" },
  failed: { zh: "失败", en: "failed" },
  stopped: { zh: "已停下", en: "stopped" },
  new: { zh: "未开始", en: "new" },
  imported: { zh: "导入", en: "imported" },
  unfinished: { zh: "未完成", en: "unfinished" },
  interrupted: { zh: "已停下", en: "stopped" },
  steps: { zh: "完成", en: "finished" },
  minutes: { zh: "完成", en: "finished" },
  tokens: { zh: "完成", en: "finished" },
  epochs: { zh: "完成", en: "finished" },
  target_loss: { zh: "达到目标", en: "target reached" },
  patience: { zh: "不再进步", en: "no longer better" },
  not_finite: { zh: "失败", en: "failed" },
  damaged: { zh: "损坏", en: "damaged" },
};

export function stateName(state: string): string {
  return t(STATES[state] ?? { zh: state, en: state });
}
