import type { Duplex } from "node:stream";
import type * as cri from "../gen/cri.ts";
import { CodedError, type ErrorCode } from "../lib/errors.ts";

/** A runtime with CRI v1's request and response messages, promises instead of callbacks, and a signal on every call.
 *  Implementations set the kubelet's deadlines. Every error is coded; a missing thing is not_found.
 *  @see https://github.com/kubernetes/cri-api/blob/master/pkg/apis/runtime/v1/api.proto */
export interface Runtime extends Sandboxes, Containers, Images, Stats, Streams, AsyncDisposable {
  version(signal: AbortSignal): Promise<cri.VersionResponse>;
  status(signal: AbortSignal): Promise<cri.StatusResponse>;
  /** The runtime's configuration (cgroup driver). @throws unimplemented on older runtimes. */
  runtimeConfig(signal: AbortSignal): Promise<RuntimeConfig>;
  updateRuntimeConfig(request: cri.UpdateRuntimeConfigRequest, signal: AbortSignal): Promise<void>;
  /** The event stream, absent for runtimes without events. It ends when the signal aborts and throws when the stream breaks: only
   *  a relist finds what happened meanwhile.
   *  @throws unimplemented. */
  events?(signal: AbortSignal): AsyncIterable<RuntimeEvent>;
  /** Container output over the runtime's own interface, for log files that cannot be read. */
  logs?(containerId: string, options: RuntimeLogOptions, signal: AbortSignal): AsyncIterable<LogLine>;
  /** Directories on the target, beside the pods' log directory, in which the runtime keeps the files that log paths link to. */
  logRoots?(signal: AbortSignal): Promise<readonly string[]>;
  /** Reason that this runtime cannot serve a pod feature: a sentence with the remedy; undefined when it can. The runtime may
   *  have to find out first; the pod that asks for the feature waits. Absent when the runtime serves everything. */
  lacks?(feature: Feature, signal: AbortSignal): Promise<string | undefined>;
  /** Time of the runtime's last sign of life, Clock.monotonic(), while its event stream would report any trouble: no need to
   *  poll it. Undefined when it has to be polled; absent when it always has to be. */
  heardAt?(): number | undefined;
  /** Other resources that the implementation created on the target for its node, to remove when the node leaves; absent when
   *  there are only sandboxes, containers and images. */
  belongings?(signal: AbortSignal): Promise<readonly Belonging[]>;
}

/** The runtime's configuration. */
export interface RuntimeConfig extends cri.RuntimeConfigResponse {
  /** True where CRI's call for it is missing, and it was found out in another way. */
  readonly isOutdated?: true;
}

/** Another resource on the target that belongs to this node alone. */
export interface Belonging {
  /** Kind and name, as in `Docker network graftlet-node-1`. */
  readonly name: string;
  /** Removes it; a missing one is success. */
  remove(signal: AbortSignal): Promise<void>;
}

/** Failures that CRI distinguishes by a word in the message, for it has no codes for them.
 *  @see https://github.com/kubernetes/cri-api/blob/master/pkg/errors/errors.go */
export const runtimeReasons = ["RegistryUnavailable", "SignatureValidationFailed", "ImageVolumeMountFailed"] as const;
export type RuntimeReason = (typeof runtimeReasons)[number];

/** A runtime's failure with such a word. */
export class RuntimeError extends CodedError {
  readonly reason: RuntimeReason;
  /** @param message the runtime's own message, which begins with the reason. */
  constructor(code: ErrorCode, reason: RuntimeReason, message: string, options?: ErrorOptions) {
    super(code, message, options);
    this.name = "RuntimeError";
    this.reason = reason;
  }
}

/** Pod features that not every runtime serves; `swapLimit` is a limit of its own, beside a container without a memory limit. */
export type Feature = "privileged" | "seccomp" | "appArmor" | "memoryLimit" | "cpuLimit" | "swapLimit" | "imageVolume";

/** A hint where to look, not a state. A sandbox event has its ID in `sandboxId`; a container event in `containerId`, with the
 *  sandbox only when the runtime reports it. `exited` marks the exit of a main process: look until the status shows it.
 *  `removed` marks a removal: an unknown ID needs no look. `listening` marks the start of the stream: relist once. */
export type RuntimeEvent =
  | { readonly is: "listening" }
  | {
      readonly is: "changed";
      readonly sandboxId?: string;
      readonly containerId?: string;
      readonly podUid?: string;
      readonly exited?: boolean;
      readonly removed?: boolean;
    };

export interface Sandboxes {
  runPodSandbox(request: cri.RunPodSandboxRequest, signal: AbortSignal): Promise<cri.RunPodSandboxResponse>;
  stopPodSandbox(sandboxId: string, signal: AbortSignal): Promise<void>;
  removePodSandbox(sandboxId: string, signal: AbortSignal): Promise<void>;
  podSandboxStatus(sandboxId: string, signal: AbortSignal): Promise<cri.PodSandboxStatusResponse>;
  listPodSandbox(filter: cri.PodSandboxFilter | undefined, signal: AbortSignal): Promise<readonly cri.PodSandbox[]>;
}

export interface Containers {
  createContainer(request: cri.CreateContainerRequest, signal: AbortSignal): Promise<cri.CreateContainerResponse>;
  startContainer(containerId: string, signal: AbortSignal): Promise<void>;
  /** SIGTERM (or the image's stop signal), then SIGKILL after `graceSeconds`. */
  stopContainer(containerId: string, graceSeconds: number, signal: AbortSignal): Promise<void>;
  removeContainer(containerId: string, signal: AbortSignal): Promise<void>;
  listContainers(filter: cri.ContainerFilter | undefined, signal: AbortSignal): Promise<readonly cri.Container[]>;
  containerStatus(containerId: string, signal: AbortSignal): Promise<cri.ContainerStatusResponse>;
  updateContainerResources(request: cri.UpdateContainerResourcesRequest, signal: AbortSignal): Promise<void>;
  reopenContainerLog(containerId: string, signal: AbortSignal): Promise<void>;
  /** Checkpoints a running container to an archive on the target. Absent for runtimes without checkpoints.
   *  @throws unimplemented on older runtimes. */
  checkpointContainer?(request: cri.CheckpointContainerRequest, signal: AbortSignal): Promise<void>;
  /** Runs a command to its end. `timeoutSeconds` 0: no limit.
   *  @throws deadline_exceeded when the command outlived its timeout. */
  execSync(
    containerId: string,
    argv: readonly string[],
    timeoutSeconds: number,
    signal: AbortSignal,
  ): Promise<cri.ExecSyncResponse>;
}

export interface Images {
  listImages(signal: AbortSignal): Promise<readonly cri.Image[]>;
  /** Undefined for a missing image. */
  imageStatus(image: cri.ImageSpec, signal: AbortSignal): Promise<cri.Image | undefined>;
  /** Pulls an image; no deadline but the signal.
   *  @param onProgress called often with the progress of the pull, by runtimes that know it.
   *  @returns the reference for creating containers. */
  pullImage(
    request: cri.PullImageRequest,
    signal: AbortSignal,
    onProgress?: (progress: PullProgress) => void,
  ): Promise<string>;
  removeImage(image: cri.ImageSpec, signal: AbortSignal): Promise<void>;
  imageFsInfo(signal: AbortSignal): Promise<cri.ImageFsInfoResponse>;
}

export interface PullProgress {
  /** Bytes received from the registry, compressed. */
  readonly bytes: number;
  /** Total bytes; undefined until every layer's size is known. */
  readonly totalBytes?: number;
  readonly layers: number;
  /** Number of unpacked layers on the target. */
  readonly layersDone: number;
}

export interface Stats {
  containerStats(containerId: string, signal: AbortSignal): Promise<cri.ContainerStats | undefined>;
  listContainerStats(
    filter: cri.ContainerStatsFilter | undefined,
    signal: AbortSignal,
  ): Promise<readonly cri.ContainerStats[]>;
  podSandboxStats?(sandboxId: string, signal: AbortSignal): Promise<cri.PodSandboxStats | undefined>;
  listPodSandboxStats?(
    filter: cri.PodSandboxStatsFilter | undefined,
    signal: AbortSignal,
  ): Promise<readonly cri.PodSandboxStats[]>;
}

/** Endpoint of a stream: a connection to open, and the request path. Used once. */
export interface Endpoint {
  /** Path and query, as the request line has them. */
  readonly path: string;
  /** Host header value. */
  readonly host: string;
  /** Opens the connection (TLS included where the endpoint is https). */
  dial(signal: AbortSignal): Promise<Duplex>;
  /** True when the endpoint speaks every WebSocket protocol of the kubelet API's clients; otherwise only SPDY is certain. */
  readonly webSockets?: true;
}

export interface Streams {
  exec(request: cri.ExecRequest, signal: AbortSignal): Promise<Endpoint>;
  attach(request: cri.AttachRequest, signal: AbortSignal): Promise<Endpoint>;
  portForward(request: cri.PortForwardRequest, signal: AbortSignal): Promise<Endpoint>;
}

export interface RuntimeLogOptions {
  readonly follow: boolean;
  /** Milliseconds since the epoch. */
  readonly since?: number;
  readonly tailLines?: number;
}

export interface LogLine {
  /** RFC 3339 with nanoseconds. */
  readonly time: string;
  readonly stream: "stdout" | "stderr";
  /** Without the newline when `partial`. */
  readonly text: Buffer;
  readonly partial: boolean;
}
