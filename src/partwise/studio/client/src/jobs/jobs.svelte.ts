/** The trainings and ladders that go on: processes of their own, followed as they run. */
import { post } from "../lib/api";
import { watch } from "../lib/socket";

export interface Job {
  id: string;
  kind: "train" | "ladder" | "translate" | "tiny";
  name: string;
  channel: string;
  state: "running" | "done" | "failed" | "stopped";
  stopping: boolean;
  started: number;
  error: string | null;
  step?: number;
  steps?: number | null;
  seconds?: number;
  minutes?: number | null;
  loss?: number | null;
  val_loss?: number | null;
}

/** All jobs, the newest first; call `close` when the page is left. */
export function followJobs(changed?: (job: Job) => void): { readonly list: Job[]; close: () => void } {
  let list = $state<Job[]>([]);
  const close = watch("jobs", (message) => {
    const all = message["jobs"] as Job[] | undefined;
    if (all) {
      list = all;
      return;
    }
    const job = message["job"] as Job;
    list = [job, ...list.filter((one) => one.id !== job.id)].sort((a, b) => b.started - a.started);
    changed?.(job);
  });
  return {
    get list() {
      return list;
    },
    close,
  };
}

export function begin(order: Record<string, unknown>): Promise<Job> {
  return post<Job>("/api/jobs", order);
}

export function stop(job: Job, now = false): Promise<Job> {
  return post<Job>(`/api/jobs/${encodeURIComponent(job.id)}/stop`, { now });
}

/** How far a job is, from 0 to 1; null where that cannot be told. */
export function share(job: Job): number | null {
  if (job.steps && job.step !== undefined) return Math.min(1, job.step / job.steps);
  if (job.minutes && job.seconds !== undefined) return Math.min(1, job.seconds / (60 * job.minutes));
  return null;
}
