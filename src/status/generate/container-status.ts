import { type ContainerStatus as RuntimeStatus, ContainerState as RuntimeState } from "../../gen/cri.ts";
import { toMilliseconds } from "../../lib/nanoseconds.ts";
import { rfc3339 } from "../../lib/rfc3339.ts";
import type { Container, ContainerState, ContainerStatus, Pod, PodStatus } from "../../objects.ts";
import type { ProbeVerdict, RuntimePod, StartFailure } from "../../pipeline.ts";
import type { ResourceStatuses } from "../../resource-manager.ts";
import { actualResources } from "./container-resources.ts";
import { isSidecar, type ContainerKind } from "../../pod/containers.ts";
import { containerRestartCountAnnotation } from "../../pod/labels.ts";
import { newestRun, runsOf } from "../../pod/runs.ts";
import type { ResizableAmounts } from "../../pod/pod-resources.ts";
import { restartsAfter } from "../../pod/restart.ts";
import { signalName } from "../../pod/stop-signal.ts";
import { shouldRestartAll, restartingAllReason } from "../../pod/restart-all.ts";
import { mayHaveRun } from "../../pod/failed-starts.ts";

export interface ContainerStatusInput {
  readonly pod: Pod;
  readonly observed: RuntimePod | undefined;
  /** The last written status: some facts are known from there only. */
  readonly previous: PodStatus | undefined;
  readonly failures: ReadonlyMap<string, StartFailure>;
  /** The newest readiness verdict of a container ID; undefined before the first. */
  readonly readiness: (containerName: string, containerId: string) => ProbeVerdict | undefined;
  /** Result of a container's startup probe; undefined without one. */
  readonly started: (containerName: string, containerId: string) => boolean | undefined;
  /** Actual CPU and memory of a running container; undefined if unknown. */
  readonly actualResources: (run: RuntimeStatus) => ResizableAmounts | undefined;
  /** Health of a container's resources; absent if the node does not report it. */
  readonly resourceHealth?: ((containerName: string) => ResourceStatuses) | undefined;
  /** True to show the containers' stop signals (feature gate ContainerStopSignals). */
  readonly stopSignals: boolean;
  /** True to show the image of image volume mounts (feature gate ImageVolumeWithDigest). */
  readonly imageVolumeDigests: boolean;
  /** The scheme of container IDs, such as `containerd`. */
  readonly runtimeName: string;
}

/** Exit code of a killed container, also used if the exit was not observed. */
const killedExitCode = 137;

const listOf = {
  containers: "containerStatuses",
  initContainers: "initContainerStatuses",
  ephemeralContainers: "ephemeralContainerStatuses",
} as const;

/** Statuses of the containers in one list of the spec: init containers in spec order, others by name.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#container-states */
export function containerStatuses(kind: ContainerKind, input: ContainerStatusInput): ContainerStatus[] {
  const containers: readonly Container[] = input.pod.spec[kind] ?? [];
  const statuses = containers.map((container) => containerStatus(kind, container, input));
  return kind === "initContainers" ? statuses : statuses.sort((a, b) => (a.name < b.name ? -1 : 1));
}

function containerStatus(kind: ContainerKind, container: Container, input: ContainerStatusInput): ContainerStatus {
  const before = input.previous?.[listOf[kind]]?.find(({ name }) => name === container.name);
  const [newest, older] = runsOf(input.observed, container.name);
  const known: ContainerContext = { kind, container, before, newest, input };
  const observed = newest
    ? fromRuntime(known, newest, older)
    : (removedForRestart(kind, before, input) ?? fromPrevious(container, before, input));
  const status = withFailure(known, observed);
  if (kind === "ephemeralContainers") return status;
  return kind === "containers" ? withResourceHealth(known, withReadiness(known, status)) : withReadiness(known, status);
}

/** Inputs for one container's status. */
interface ContainerContext {
  readonly kind: ContainerKind;
  readonly container: Container;
  /** The last reported status. */
  readonly before: ContainerStatus | undefined;
  /** The newest runtime container of this name. */
  readonly newest: RuntimeStatus | undefined;
  readonly input: ContainerStatusInput;
}

/** Returns the status of a container that the runtime does not have (any more). */
function fromPrevious(
  container: Container,
  before: ContainerStatus | undefined,
  { pod }: ContainerStatusInput,
): ContainerStatus {
  if (before?.state?.terminated) return before;
  const reason = pod.spec.initContainers?.length ? "PodInitializing" : "ContainerCreating";
  const waiting: ContainerStatus = {
    name: container.name,
    image: container.image ?? "",
    imageID: "",
    ready: false,
    restartCount: before?.restartCount ?? 0,
    state: { waiting: { reason } },
    lastState: before?.lastState ?? {},
    ...volumeMounts(container, undefined),
  };
  if (!before?.state?.running || before.lastState?.terminated) return waiting;
  const message = "The container could not be located when the pod was deleted.  The container used to be Running";
  const restarts = waiting.restartCount + (pod.metadata.deletionTimestamp ? 0 : 1);
  return { ...waiting, restartCount: restarts, lastState: { terminated: lostContainer(message) } };
}

/** Returns the status of a container that was removed because all containers of its pod restart; undefined for any other. */
function removedForRestart(
  kind: ContainerKind,
  known: ContainerStatus | undefined,
  { pod, observed, previous }: ContainerStatusInput,
): ContainerStatus | undefined {
  if (!known || known.state?.waiting || kind === "ephemeralContainers") return undefined;
  if (!shouldRestartAll(pod, observed, previous)) return undefined;
  const { resources: _resources, user: _user, ...before } = known;
  const message = "The container is removed because RestartAllContainers in place";
  return {
    ...before,
    ready: false,
    restartCount: before.restartCount + 1,
    state: { waiting: { reason: restartingAllReason, message } },
    lastState: { terminated: { exitCode: killedExitCode, reason: restartingAllReason, message } },
  };
}

/** Returns the terminated state of a container whose exit was not observed. */
export function lostContainer(message: string): NonNullable<ContainerState["terminated"]> {
  return { exitCode: killedExitCode, reason: "ContainerStatusUnknown", message };
}

function fromRuntime(
  { container, before, input }: ContainerContext,
  newest: RuntimeStatus,
  older: RuntimeStatus | undefined,
): ContainerStatus {
  const containerID = `${input.runtimeName}://${newest.id}`;
  const state = stateOf(newest, before, input);
  const running = newest.state === RuntimeState.CONTAINER_RUNNING;
  const requests = container.resources?.requests;
  const linux = newest.user?.linux;
  const user = linux && {
    uid: Number(linux.uid),
    gid: Number(linux.gid),
    supplementalGroups: linux.supplementalGroups.map(Number),
  };
  const stopSignal = input.stopSignals ? signalName(newest.stopSignal) : undefined;
  return {
    name: container.name,
    image: newest.image?.image ?? "",
    imageID: newest.imageRef,
    containerID,
    ready: false,
    restartCount: restartCount(newest, before),
    state,
    lastState: older ? stateOf(older, before, input) : lastStateOf(containerID, before),
    resources: actualResources(container, newest, running, running ? input.actualResources(newest) : undefined),
    ...(requests && { allocatedResources: requests }),
    ...(user && { user: { linux: user } }),
    ...(stopSignal !== undefined && { stopSignal }),
    ...withImageDigests(volumeMounts(container, before, newest), newest, input),
  };
}

/** Returns the restart count, which never decreases, even if the runtime has removed older containers. */
function restartCount(run: RuntimeStatus, before: ContainerStatus | undefined): number {
  const counted = Number(run.annotations[containerRestartCountAnnotation] ?? run.metadata?.attempt ?? 0) || 0;
  const known = before?.restartCount ?? 0;
  if (run.state === RuntimeState.CONTAINER_UNKNOWN && before?.state?.running) return known + 1;
  if (run.state === RuntimeState.CONTAINER_RUNNING && before?.state?.terminated && known >= counted) return known + 1;
  return Math.max(known, counted);
}

/** Returns the termination of the previous container, from the last status, since the runtime only has the newest container. */
function lastStateOf(containerID: string, before: ContainerStatus | undefined): ContainerState {
  if (before?.state?.terminated && before.containerID !== containerID) return { terminated: before.state.terminated };
  return before?.lastState?.terminated ? { terminated: before.lastState.terminated } : {};
}

function stateOf(
  run: RuntimeStatus,
  before: ContainerStatus | undefined,
  { pod, observed, previous, runtimeName }: ContainerStatusInput,
): ContainerState {
  switch (run.state) {
    case RuntimeState.CONTAINER_RUNNING:
      return { running: { startedAt: formatTime(run.startedAt) } };
    case RuntimeState.CONTAINER_EXITED:
      return {
        terminated: {
          exitCode: run.exitCode,
          ...(run.reason && { reason: run.reason }),
          ...(run.message && { message: mayHaveRun(run) ? `${run.message}: ${mayHaveRunText}` : run.message }),
          startedAt: formatTime(run.startedAt),
          finishedAt: formatTime(run.finishedAt),
          containerID: `${runtimeName}://${run.id}`,
        },
      };
    case RuntimeState.CONTAINER_UNKNOWN: {
      if (!before?.state?.running) return { waiting: {} };
      const terminated = lostContainer("The container could not be located when the pod was terminated");
      return {
        terminated: {
          ...terminated,
          ...(shouldRestartAll(pod, observed, previous) && { reason: restartingAllReason }),
        },
      };
    }
    default:
      return { waiting: {} };
  }
}

/** Text appended to the runtime's message about an interrupted start. */
const mayHaveRunText = "the agent lost its connection to the runtime while starting the container, which may have run";

/** Formats a time. @param nanoseconds since the epoch, as in CRI. */
function formatTime(nanoseconds: bigint): string {
  return rfc3339(toMilliseconds(nanoseconds));
}

/** Shows a container that failed to start as Waiting, with the reason; its last run moves to lastState. */
function withFailure({ kind, container, newest, input }: ContainerContext, status: ContainerStatus): ContainerStatus {
  const { pod, observed, failures } = input;
  const exited = newest?.state === RuntimeState.CONTAINER_EXITED;
  if (kind === "initContainers") {
    if (exited && newest.exitCode === 0) return status;
    if (!newest && !isSidecar(container) && status.state?.waiting && mainContainerCreated(pod, observed))
      return { ...status, state: { terminated: completedInit } };
  }
  const mayStart =
    !pod.metadata.deletionTimestamp &&
    newest?.state !== RuntimeState.CONTAINER_RUNNING &&
    (!exited || restartsAfter(container, pod.spec, newest.exitCode));
  const failure = mayStart ? failures.get(container.name) : undefined;
  if (!failure) return status;
  const lastState = status.state?.terminated ? status.state : status.lastState;
  return {
    ...status,
    state: { waiting: { reason: failure.reason, message: failure.message } },
    ...(lastState && { lastState }),
  };
}

/** Terminated state of an init container that the runtime no longer has: it has succeeded, since main containers have been
 *  created. */
const completedInit = {
  exitCode: 0,
  reason: "Completed",
  message:
    "Unable to get init container status from container runtime and pod has been initialized, treat it as exited normally",
} as const;

function mainContainerCreated({ spec }: Pod, observed: RuntimePod | undefined): boolean {
  return spec.containers.some(({ name }) => {
    const state = newestRun(observed, name)?.state;
    return state !== undefined && state !== RuntimeState.CONTAINER_UNKNOWN;
  });
}

/** Sets the readiness by probe results, or, before the first result, as in the last status of the same container, so that
 *  restarting the agent changes nothing. */
function withReadiness({ kind, container, before, input }: ContainerContext, status: ContainerStatus): ContainerStatus {
  const running = status.state?.running !== undefined;
  const same = before !== undefined && before.containerID === status.containerID ? before : undefined;
  const passed = running ? (input.started(container.name, bareContainerId(status)) ?? same?.started) : undefined;
  const started = running && (!container.startupProbe || passed === true);
  if (kind === "initContainers" && !isSidecar(container))
    return { ...status, started, ready: status.state?.terminated?.exitCode === 0 };
  if (!started) return { ...status, started, ready: false };
  const verdict = container.readinessProbe ? input.readiness(container.name, bareContainerId(status)) : "Success";
  const ready = verdict === "Success" || (verdict !== "Failure" && same?.ready === true);
  return { ...status, started, ready };
}

/** @see https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/#device-plugin-integration-with-pod-status */
function withResourceHealth({ container, input }: ContainerContext, status: ContainerStatus): ContainerStatus {
  const resources = input.resourceHealth?.(container.name) ?? [];
  return resources.length > 0 ? { ...status, allocatedResourcesStatus: resources } : status;
}

function bareContainerId({ containerID = "" }: ContainerStatus): string {
  return containerID.slice(containerID.indexOf("://") + 3);
}

/** Returns the mounts of the spec; mounts in an earlier status are kept, since a container's mounts never change. Recursive
 *  read-only is taken from the runtime's report. */
function volumeMounts(
  container: Container,
  before: ContainerStatus | undefined,
  run?: RuntimeStatus,
): Pick<ContainerStatus, "volumeMounts"> {
  const perhapsRecursive = container.volumeMounts?.some(({ recursiveReadOnly }) => recursiveReadOnly) === true;
  if (before?.volumeMounts && !(run && perhapsRecursive)) return { volumeMounts: before.volumeMounts };
  if (!container.volumeMounts?.length) return {};
  return {
    volumeMounts: container.volumeMounts.map(({ name, mountPath, readOnly }) => ({
      name,
      mountPath,
      ...(readOnly && { readOnly, recursiveReadOnly: isRecursive(run, mountPath) ? "Enabled" : "Disabled" }),
    })),
  };
}

/** Adds to mounts of image volumes the images that the runtime has mounted. (gate ImageVolumeWithDigest) */
function withImageDigests(
  { volumeMounts: mounts }: Pick<ContainerStatus, "volumeMounts">,
  { mounts: actual }: RuntimeStatus,
  { pod, imageVolumeDigests }: ContainerStatusInput,
): Pick<ContainerStatus, "volumeMounts"> {
  if (!mounts) return {};
  if (!imageVolumeDigests) return { volumeMounts: mounts };
  const images = new Set(pod.spec.volumes?.filter(({ image }) => image).map(({ name }) => name));
  return {
    volumeMounts: mounts.map((mount) => {
      const imageRef = actual.find(({ containerPath, image }) => containerPath === mount.mountPath && image)?.image
        ?.image;
      return images.has(mount.name) && imageRef ? { ...mount, volumeStatus: { image: { imageRef } } } : mount;
    }),
  };
}

function isRecursive(run: RuntimeStatus | undefined, mountPath: string): boolean {
  return (
    run?.mounts.some(({ containerPath, recursiveReadOnly }) => containerPath === mountPath && recursiveReadOnly) ===
    true
  );
}
