import { rfc3339 } from "../lib/rfc3339.ts";
import type { ContainerState, ContainerStatus, Pod, PodStatus } from "../objects.ts";

/** Maximum total bytes of a pod's termination messages.
 *  @see https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/ */
const messageBytes = 12 * 1024;

/** Normalizes a status as the API server stores it: whole seconds, truncated termination messages, sorted lists. */
export function normalizeStatus(pod: Pod, status: PodStatus): PodStatus {
  const { containers, initContainers = [], ephemeralContainers = [] } = pod.spec;
  const share = Math.floor(
    messageBytes / Math.max(1, containers.length + initContainers.length + ephemeralContainers.length),
  );
  const order = new Map(initContainers.map(({ name }, index) => [name, index]));
  const each = (list: readonly ContainerStatus[]) => list.map((one) => normalizeContainer(one, share));
  const byName = (a: ContainerStatus, b: ContainerStatus) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0);
  const bySpec = (a: ContainerStatus, b: ContainerStatus) => (order.get(a.name) ?? 0) - (order.get(b.name) ?? 0);
  return {
    ...status,
    ...(status.startTime && { startTime: wholeSeconds(status.startTime) }),
    ...(status.containerStatuses && { containerStatuses: each(status.containerStatuses).sort(byName) }),
    ...(status.initContainerStatuses && { initContainerStatuses: each(status.initContainerStatuses).sort(bySpec) }),
    ...(status.ephemeralContainerStatuses && {
      ephemeralContainerStatuses: each(status.ephemeralContainerStatuses).sort(byName),
    }),
  };
}

function normalizeContainer(status: ContainerStatus, share: number): ContainerStatus {
  return {
    ...status,
    ...(status.state && { state: normalizeState(status.state, share) }),
    ...(status.lastState && { lastState: normalizeState(status.lastState, share) }),
  };
}

function normalizeState(state: ContainerState, share: number): ContainerState {
  const { running, terminated } = state;
  return {
    ...state,
    ...(running?.startedAt && { running: { ...running, startedAt: wholeSeconds(running.startedAt) } }),
    ...(terminated && {
      terminated: {
        ...terminated,
        ...(terminated.startedAt && { startedAt: wholeSeconds(terminated.startedAt) }),
        ...(terminated.finishedAt && { finishedAt: wholeSeconds(terminated.finishedAt) }),
        ...(terminated.message && { message: truncate(terminated.message, share) }),
      },
    }),
  };
}

function wholeSeconds(time: string): string {
  const ms = Date.parse(time);
  return Number.isNaN(ms) ? time : rfc3339(ms);
}

/** The longest prefix of a text that fits into `bytes` bytes. */
function truncate(text: string, bytes: number): string {
  const encoded = Buffer.from(text);
  if (encoded.length <= bytes) return text;
  let end = bytes;
  // A byte 10xxxxxx continues a character.
  while (end > 0 && ((encoded[end] ?? 0) & 0xc0) === 0x80) end -= 1;
  return encoded.toString("utf8", 0, end);
}
