import type { ContainerType } from "./step.ts";
import {
  type ContainerConfig,
  ContainerState,
  type ContainerStatus,
  CreateContainerRequest,
  type Image,
  type PodSandboxConfig,
} from "../gen/cri.ts";
import { abortError, hasCode, messageOf, ignoreNotFound } from "../lib/errors.ts";
import type { Container, Pod } from "../objects.ts";
import type { MountedVolumes, RuntimePod } from "../pipeline.ts";
import { containerRestartCountAnnotation } from "../pod/labels.ts";
import { containerReference } from "../pod/reference.ts";
import { newestRun } from "../pod/runs.ts";
import { type Containers, RuntimeError } from "../seams/runtime.ts";
import type { CreatedFiles } from "./container-files.ts";
import type { EnsuredImage, VolumeImages } from "./images/puller.ts";
import { type KillDeps, killContainer } from "./kill.ts";
import type { StableFiles } from "./ports.ts";
import { StartError } from "./start-error.ts";

/** Starts of sandboxes and containers. */
export interface StartMeasures {
  /** A pod's sandbox is about to be created. @param inUserNamespace true if the pod has its own user namespace. */
  podStarting(inUserNamespace: boolean): void;
  podFailed(): void;
  /** A pod with its own user namespace did not start, or did not get its new sandbox. */
  userNamespacedPodFailed(): void;
  containerStarting(containerType: ContainerType): void;
  /** @param reason of the container's Waiting state. */
  containerFailed(containerType: ContainerType, reason: string): void;
  /** A container with image volumes was created, or could not be created. @param images number of distinct images. @param places
   *  number of mount paths. */
  imageVolumes(images: number, places: number, outcome: "mounted" | "failed"): void;
}

/** The sandbox in which a container starts. */
export interface ReadySandbox {
  readonly id: string;
  readonly config: PodSandboxConfig;
  /** Addresses of the pod, primary first, once they are known and reported. Rejects if the sandbox is not ready; no container is started
   *  then. */
  readonly ips: Promise<readonly string[]>;
}

export interface ContainerStart {
  readonly pod: Pod;
  readonly container: Container;
  readonly observed: RuntimePod;
  readonly sandbox: ReadySandbox;
  readonly mounted: MountedVolumes;
  /** The container's image on the target, if already known. */
  readonly presentImage?: Image | undefined;
  /** True if the container is known to have no logs yet. */
  readonly hasNoLogs?: boolean;
  /** The container's files, if they exist already. */
  readonly created?: CreatedFiles | undefined;
}

/** Configuration of a container whose files exist. */
export interface ConfiguredContainer {
  readonly config: ContainerConfig;
  /** Resolves when the container's hosts file is written; the created container is not started before. */
  readonly hostsWritten: Promise<void>;
}

/** ID of the container that an ephemeral container targets; undefined without a target.
 *  @throws Error in the kubelet's words if the target container never existed. */
export function targetContainerId({ pod, container, observed }: ContainerStart): string | undefined {
  const name = pod.spec.ephemeralContainers?.find((one) => one.name === container.name)?.targetContainerName;
  if (!name) return undefined;
  const target = newestRun(observed, name);
  if (!target) throw new Error(`unable to find target container ${name}`);
  return target.id;
}

/** Images of a container and of its volumes. */
export interface EnsuredImages extends EnsuredImage {
  readonly volumes: VolumeImages;
}

export interface StartedContainer {
  readonly id: string;
  readonly config: ContainerConfig;
  /** Resolves when the log has been linked, or linking has failed. */
  readonly linked: Promise<void>;
}

export interface StartDeps extends KillDeps, StableFiles {
  readonly runtime: KillDeps["runtime"] & Pick<Containers, "createContainer" | "startContainer" | "removeContainer">;
  /** Ensures that the image and those of image volumes are on the target. @throws StartError. */
  readonly ensureImages: (start: ContainerStart, signal: AbortSignal) => Promise<EnsuredImages>;
  /** Builds the container's configuration and writes its files on the target. */
  readonly configure: (
    start: ContainerStart,
    images: EnsuredImages,
    restartCount: number,
    signal: AbortSignal,
  ) => Promise<ConfiguredContainer>;
  /** The next restart count according to the names in the container's log directory; 0 if there are none. */
  readonly restartCountFromLogs: (pod: Pod, container: Container, signal: AbortSignal) => Promise<number>;
  /** Links the log into the directory of log collectors. */
  readonly linkLog: (start: ContainerStart, config: ContainerConfig, containerId: string) => Promise<void>;
  /** Removes the log of a container, its rotated files and its link. */
  readonly removeLog: (pod: Pod, status: ContainerStatus, signal: AbortSignal) => Promise<void>;
  readonly measures: Pick<StartMeasures, "imageVolumes">;
  /** Signal for calls that must not be interrupted; the runtime has its own deadline. */
  readonly uninterrupted: AbortSignal;
}

/** Pulls, creates and starts one container. The signal interrupts before each stage and during the pull, but never a create or start
 *  call, which would leave a half-created container behind. From the configuration until the runtime has answered, the files of the
 *  pod's volumes do not change, since the runtime mounts them by path.
 *  @throws StartError with the reason and message for the container's Waiting state. */
export async function startContainer(
  deps: StartDeps,
  start: ContainerStart,
  signal: AbortSignal,
): Promise<StartedContainer> {
  const { events } = deps;
  const reference = containerReference(start.pod, start.container.name);
  const failed: StartFailed = (reason, error, containerId) => {
    const text = messageOf(error);
    // With the ID, each attempt's event would be distinct and not be aggregated. (kubelet)
    const shown = containerId === undefined ? text : text.replaceAll(containerId, start.container.name);
    events.event(reference, "Warning", "Failed", `Error: ${shown}`);
    const answered = !hasCode(error, "unavailable", "deadline_exceeded", "cancelled");
    return new StartError(reason, text, { cause: error, refused: answered ? containerId : undefined });
  };
  const images = await deps.ensureImages(start, signal).catch((error: unknown) => {
    if (error instanceof StartError) events.event(reference, "Warning", "Failed", `Error: ${error.reason}`);
    throw error;
  });
  stopIfAborted(signal);
  const restartCount = await nextRestartCount(deps, start, signal).catch((error: unknown) => {
    stopIfAborted(signal);
    throw failed("CreateContainerError", error);
  });
  const { uid } = start.pod.metadata;
  const { id, config } = await deps.withStableFiles(uid, async () => {
    stopIfAborted(signal);
    const created = await createContainer(deps, start, { images, restartCount, failed }, signal);
    stopIfAborted(signal);
    await deps.runtime.startContainer(created.id, deps.uninterrupted).catch((error: unknown) => {
      stopIfAborted(signal);
      throw failed("RunContainerError", error, created.id);
    });
    return created;
  });
  events.event(reference, "Normal", "Started", "Container started");
  const linked = deps.linkLog(start, config, id).catch((error: unknown) => {
    deps.log.debug({ err: error, containerId: id }, "cannot link container log");
  });
  return { id, config, linked };
}

/** Reports the failure of a start by an event. @returns the error for the container's status. */
type StartFailed = (reason: string, error: unknown, containerId?: string) => StartError;

/** Configures a container and has the runtime create it. Resolves once the sandbox has been reported ready. @throws StartError; the error
 *  of a sandbox that is not ready. */
async function createContainer(
  deps: StartDeps,
  start: ContainerStart,
  context: { readonly images: EnsuredImages; readonly restartCount: number; readonly failed: StartFailed },
  signal: AbortSignal,
): Promise<Omit<StartedContainer, "linked">> {
  const { images, restartCount, failed } = context;
  const configFailed = (error: unknown): never => {
    stopIfAborted(signal);
    throw failed("CreateContainerConfigError", error);
  };
  const { config, hostsWritten } = await deps.configure(start, images, restartCount, signal).catch(configFailed);
  stopIfAborted(signal);
  const request = CreateContainerRequest.fromPartial({
    podSandboxId: start.sandbox.id,
    config,
    sandboxConfig: start.sandbox.config,
  });
  const creating = deps.runtime.createContainer(request, deps.uninterrupted);
  await Promise.allSettled([creating, start.sandbox.ips]);
  const ips = await start.sandbox.ips;
  const { containerId: id } = await creating.catch((error: unknown) => {
    stopIfAborted(signal);
    if (error instanceof RuntimeError && error.reason === "ImageVolumeMountFailed")
      countImageVolumes(deps, start, images, "failed");
    throw failed("CreateContainerError", error);
  });
  if (ips.length === 0 && start.created && !start.pod.spec.hostNetwork) {
    // The configuration assumed an address: without one, the container has no hosts file of the pod.
    await ignoreNotFound(deps.runtime.removeContainer(id, deps.uninterrupted));
    return createContainer(deps, { ...start, created: undefined }, context, signal);
  }
  await hostsWritten.catch(configFailed);
  countImageVolumes(deps, start, images, "mounted");
  deps.events.event(containerReference(start.pod, start.container.name), "Normal", "Created", "Container created");
  return { id, config };
}

function countImageVolumes(
  { measures }: StartDeps,
  { container: { volumeMounts = [] } }: ContainerStart,
  { volumes }: EnsuredImages,
  outcome: "mounted" | "failed",
): void {
  const mounts = volumeMounts.filter(({ name }) => volumes.has(name)).length;
  if (mounts > 0) measures.imageVolumes(volumes.size, mounts, outcome);
}

/** Runs the postStart hook of a running container; the signal interrupts it. A container whose hook fails is killed.
 *  @throws StartError as above.
 *  @see https://kubernetes.io/docs/concepts/containers/container-lifecycle-hooks/ */
export async function runPostStart(
  deps: StartDeps,
  { pod, container, sandbox }: ContainerStart,
  { id, config: { metadata, labels } }: StartedContainer,
  signal: AbortSignal,
): Promise<void> {
  const hook = container.lifecycle?.postStart;
  if (!hook) return;
  const [podIP] = await sandbox.ips;
  try {
    await deps.hooks.run(hook, { pod, container, containerId: id, podIP }, signal);
  } catch (error) {
    stopIfAborted(signal);
    // The hook's output may be a secret.
    deps.events.event(
      containerReference(pod, container.name),
      "Warning",
      "FailedPostStartHook",
      "PostStartHook failed",
    );
    const status = { id, metadata, labels };
    const message = "FailedPostStartHook";
    await killContainer(deps, { status, pod, podIP, message, graceSeconds: undefined }, signal).catch(
      (err: unknown) => {
        stopIfAborted(signal);
        deps.log.warn({ err, containerId: id }, "cannot kill container after a failed postStart hook");
      },
    );
    throw new StartError("PostStartHookError", messageOf(error), { cause: error });
  }
}

/** The restart count of the new container. A container that was created and never started (graftlet stopped in between) is removed, and
 *  its count reused. */
async function nextRestartCount(
  deps: StartDeps,
  { pod, container, observed, hasNoLogs }: ContainerStart,
  signal: AbortSignal,
): Promise<number> {
  const last = newestRun(observed, container.name);
  if (!last) return hasNoLogs ? 0 : deps.restartCountFromLogs(pod, container, signal);
  if (last.state !== ContainerState.CONTAINER_CREATED) return restartCountOf(last) + 1;
  await ignoreNotFound(deps.runtime.removeContainer(last.id, deps.uninterrupted));
  return restartCountOf(last);
}

function restartCountOf({ annotations, metadata }: ContainerStatus): number {
  return Number.parseInt(annotations[containerRestartCountAnnotation] ?? "", 10) || (metadata?.attempt ?? 0);
}

function stopIfAborted(signal: AbortSignal): void {
  if (signal.aborted) throw abortError(signal);
}
