import { setTimeout as sleep } from "node:timers/promises";
import type { Pod } from "../../src/objects.ts";
import { condition, isNotFound, type Pods, type SpecDraft } from "../harness/pods.ts";
import { sandboxImage } from "../harness/containerd-config.ts";

/** When a pod was asked for and when the API server first showed it so, milliseconds on `performance.now()`. */
export interface Life {
  readonly asked: number;
  readonly shown: number;
}

/** A pod that does nothing and ends when it is asked to. The node is named: the scheduler has no part in what is measured. */
export function idlePod(nodeName: string, more: SpecDraft = {}): SpecDraft {
  return {
    nodeName,
    terminationGracePeriodSeconds: 30,
    containers: [{ image: sandboxImage, command: undefined, imagePullPolicy: "IfNotPresent" }],
    ...more,
  };
}

/** When the watch first told that a pod is so, milliseconds on `performance.now()`. */
export async function moment(
  pods: Pods,
  name: string,
  what: string,
  holds: (pod: Pod) => boolean,
  timeoutMs = 180_000,
): Promise<number> {
  let at = Number.NaN;
  const look = (pod: Pod): boolean => {
    if (!holds(pod)) return false;
    at = performance.now();
    return true;
  };
  await pods.until(name, what, look, timeoutMs);
  return at;
}

export const isRunning = ({ status }: Pod): boolean => status?.phase === "Running";
export const isReady = (pod: Pod): boolean => condition(pod, "Ready")?.status === "True";

/** Creates a pod and waits until it is Running. */
export async function live(pods: Pods, name: string, spec: SpecDraft): Promise<Life> {
  const asked = performance.now();
  const shown = moment(pods, name, "to run", isRunning);
  // What `create` throws is thrown here.
  shown.catch(() => {});
  await pods.create(name, spec);
  return { asked, shown: await shown };
}

/** Makes sure that a pod is there that stands through all turns. It has begun to run when this resolves. */
export async function standing(pods: Pods, name: string, spec: SpecDraft): Promise<void> {
  if (pods.history(name).length === 0) await pods.create(name, spec);
  await moment(pods, name, "to have run", ({ status }) => status?.phase !== "Pending" && status?.phase !== undefined);
}

/** Deletes a pod as kubectl does, and waits until the API server has it no more. */
export async function end(pods: Pods, name: string): Promise<Life> {
  const asked = performance.now();
  const gone = pods.gone(name, () => performance.now());
  await pods.remove(name);
  return { asked, shown: (await gone).found };
}

/** Takes all pods of these names away, some at a time, and waits until the API server has none of them. */
export async function clear(pods: Pods, names: readonly string[]): Promise<void> {
  for (let from = 0; from < names.length; from += clearedAtOnce)
    await Promise.all(names.slice(from, from + clearedAtOnce).map((name) => takeAway(pods, name)));
  // What an agent does after a pod is gone from the API server is not part of what comes next.
  await sleep(settleMs);
}

async function takeAway(pods: Pods, name: string): Promise<void> {
  const gone = pods.gone(name);
  // Of a pod that was never there nothing is told.
  gone.catch(() => {});
  try {
    await pods.remove(name, 1);
  } catch (error) {
    if (isNotFound(error)) return;
    throw error;
  }
  await gone;
}

const clearedAtOnce = 30;

/** How long an agent is left alone between two things that are measured, milliseconds. */
const settleMs = 3_000;

/** `PREFIX-0`, `PREFIX-1` … */
export function numbered(prefix: string, count: number): string[] {
  return Array.from({ length: count }, (_, index) => `${prefix}-${index}`);
}
