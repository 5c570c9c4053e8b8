import { ContainerState, PodSandboxState } from "../gen/cri.ts";
import { CodedError } from "../lib/errors.ts";
import { untilAborted } from "../lib/runnables.ts";
import type { Container, ContainerStatus, EphemeralContainer, Pod, PodStatus } from "../objects.ts";
import { containerNameLabel, podUidLabel } from "../pod/labels.ts";
import { isPlaceholder, placeholderMessage } from "../pod/placeholder.ts";
import { newestRun, isRunning } from "../pod/runs.ts";
import type { KubeletServerDeps, ServedRuntime } from "./ports.ts";

/** Time for which a request waits until the node knows its pods, milliseconds; less than kubectl's timeout. */
const podsKnownTimeoutMs = 10_000;

/** If the node has no pod of that name, waits until it knows its pods: after a restart it learns of them within a second or two. @returns
 *  false on a timeout: the pod's existence is then unknown. */
export async function waitForPod(
  { desired, podsKnown, clock }: Pick<KubeletServerDeps, "desired" | "podsKnown" | "clock">,
  namespace: string,
  name: string,
  signal: AbortSignal,
): Promise<boolean> {
  if (desired.byName(namespace, name)) return true;
  return untilAborted(podsKnown, clock.within(podsKnownTimeoutMs, signal)).then(
    () => true,
    () => desired.byName(namespace, name) !== undefined,
  );
}

/** Explains that a placeholder has no containers; undefined for other pods. */
export function placeholderText(
  { status: statuses }: Pick<KubeletServerDeps, "status">,
  { metadata: { uid, name }, status }: Pod,
): string | undefined {
  return isPlaceholder(statuses.get(uid) ?? status)
    ? `pod ${JSON.stringify(name)} is a placeholder: ${placeholderMessage}`
    : undefined;
}

/** A container of the spec by name, of any kind. */
export function containerSpec(pod: Pod, name: string): Container | EphemeralContainer | undefined {
  const { containers, initContainers = [], ephemeralContainers = [] } = pod.spec;
  return [...containers, ...initContainers, ...ephemeralContainers].find((container) => container.name === name);
}

/** Dependencies of the look-ups. */
export type RuntimeLookup = Pick<KubeletServerDeps, "runtime" | "podCache">;

/** Acts on the running container of that name, the newest of several. @returns undefined if none runs. @throws the errors of `act`. */
export function inContainer<T>(
  { runtime, podCache }: RuntimeLookup,
  pod: Pod,
  name: string,
  act: (containerId: string) => Promise<T>,
  signal: AbortSignal,
): Promise<T | undefined> {
  const { uid } = pod.metadata;
  const seen = newestRun(podCache.get(uid), name, isRunning);
  return tryCachedFirst(seen?.id, act, () => runningContainer(runtime, pod, name, signal));
}

/** Acts on the pod's ready sandbox, the newest of several. @returns undefined if none is ready. @throws the errors of `act`. */
export function inSandbox<T>(
  { runtime, podCache }: RuntimeLookup,
  pod: Pod,
  act: (sandboxId: string) => Promise<T>,
  signal: AbortSignal,
): Promise<T | undefined> {
  const seen = podCache.get(pod.metadata.uid)?.sandboxes.find(({ state }) => state === PodSandboxState.SANDBOX_READY);
  return tryCachedFirst(seen?.id, act, () => readySandbox(runtime, pod, signal));
}

/** The cached state is usually current: the runtime is queried only if the action fails. */
async function tryCachedFirst<T>(
  seen: string | undefined,
  act: (id: string) => Promise<T>,
  look: () => Promise<string | undefined>,
): Promise<T | undefined> {
  try {
    if (seen !== undefined) return await act(seen);
  } catch (error) {
    const now = await look().catch(() => seen);
    if (now === seen) throw error;
    return now === undefined ? undefined : act(now);
  }
  const now = await look();
  return now === undefined ? undefined : act(now);
}

async function runningContainer(
  runtime: ServedRuntime,
  pod: Pod,
  name: string,
  signal: AbortSignal,
): Promise<string | undefined> {
  const labelSelector = { [podUidLabel]: pod.metadata.uid, [containerNameLabel]: name };
  const found = await runtime.listContainers(
    { id: "", podSandboxId: "", state: { state: ContainerState.CONTAINER_RUNNING }, labelSelector },
    signal,
  );
  return newest(found)?.id;
}

async function readySandbox(runtime: ServedRuntime, pod: Pod, signal: AbortSignal): Promise<string | undefined> {
  const filter = {
    id: "",
    state: { state: PodSandboxState.SANDBOX_READY },
    labelSelector: { [podUidLabel]: pod.metadata.uid },
  };
  return newest(await runtime.listPodSandbox(filter, signal))?.id;
}

function newest<T extends { readonly createdAt: bigint }>(items: readonly T[]): T | undefined {
  return items.reduce<T | undefined>(
    (best, item) => (best && best.createdAt >= item.createdAt ? best : item),
    undefined,
  );
}

/** ID, in Kubernetes' format (`containerd://…`), of the container whose log is requested. @throws CodedError failed_precondition with the
 *  kubelet's text if there is no such log yet. */
export function loggedContainer(
  podName: string,
  status: PodStatus | undefined,
  name: string,
  previous: boolean,
): string {
  const fail = (text: string): never => {
    throw new CodedError("failed_precondition", text);
  };
  const what = `container ${JSON.stringify(name)} in pod ${JSON.stringify(podName)}`;
  const found = containerStatus(status, name) ?? fail(`${what} is not available`);
  const last = found.lastState?.terminated;
  if (previous) return last?.containerID || fail(`previous terminated ${what} not found`);
  const { running, terminated, waiting } = found.state ?? {};
  if (running) return found.containerID ?? "";
  if (terminated) return terminated.containerID || last?.containerID || fail(`${what} is terminated`);
  if (last) return last.containerID || fail(`${what} is terminated`);
  if (waiting) return fail(`${what} is waiting to start: ${waitingText(waiting.reason ?? "")}`);
  return fail(`${what} is waiting to start - no logs yet`);
}

function containerStatus(status: PodStatus | undefined, name: string): ContainerStatus | undefined {
  const { containerStatuses = [], initContainerStatuses = [], ephemeralContainerStatuses = [] } = status ?? {};
  return [...containerStatuses, ...initContainerStatuses, ...ephemeralContainerStatuses].find(
    (one) => one.name === name,
  );
}

function waitingText(reason: string): string {
  switch (reason) {
    case "ErrImagePull":
      return "image can't be pulled";
    case "ImagePullBackOff":
      return "trying and failing to pull image";
    default:
      return reason;
  }
}
