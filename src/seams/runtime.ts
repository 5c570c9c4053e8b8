import type { Duplex } from "node:stream";
import type * as cri from "../gen/cri.ts";
import { CodedError, type ErrorCode } from "../lib/errors.ts";

/** Runtime speaks CRI v1: the request and response messages of api.proto, promises in place of callbacks, a signal on every
 *  call. An implementation sets the deadlines that kubelets use. Every error is coded; a thing that is gone is not_found.
 *  @see https://github.com/kubernetes/cri-api/blob/master/pkg/apis/runtime/v1/api.proto */
export interface Runtime extends Sandboxes, Containers, Images, Stats, Streams, AsyncDisposable {
  version(signal: AbortSignal): Promise<cri.VersionResponse>;
  status(signal: AbortSignal): Promise<cri.StatusResponse>;
  /** The runtime's configuration (cgroup driver). @throws unimplemented on older runtimes. */
  runtimeConfig(signal: AbortSignal): Promise<cri.RuntimeConfigResponse>;
  updateRuntimeConfig(request: cri.UpdateRuntimeConfigRequest, signal: AbortSignal): Promise<void>;
  /** Hints as they happen; absent where the runtime has no events. The iteration ends when the signal aborts and throws
   *  when the stream breaks: what happened meanwhile is only found by a relist. @throws unimplemented. */
  events?(signal: AbortSignal): AsyncIterable<RuntimeEvent>;
  /** Container output read over the runtime's own interface, where its log files cannot be read. */
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

/** Something on the target that is neither sandbox nor container, and this node's alone. */
export interface Belonging {
  /** Kind and name, as in `Docker network graftlet-node-1`. */
  readonly name: string;
  /** Removes it; what is gone is removed. */
  remove(signal: AbortSignal): Promise<void>;
}

/** Failures that CRI distinguishes by a word in the message, for it has no codes for them.
 *  @see https://github.com/kubernetes/cri-api/blob/master/pkg/errors/errors.go */
export const runtimeReasons = ["RegistryUnavailable", "SignatureValidationFailed", "ImageVolumeMountFailed"] as const;
export type RuntimeReason = (typeof runtimeReasons)[number];

/** A runtime's failure that says why by such a word. */
export class RuntimeError extends CodedError {
  readonly reason: RuntimeReason;
  /** @param message in the runtime's own words, of which the reason is the first. */
  constructor(code: ErrorCode, reason: RuntimeReason, message: string, options?: ErrorOptions) {
    super(code, message, options);
    this.name = "RuntimeError";
    this.reason = reason;
  }
}

/** Pod features that not every runtime serves. */
export type Feature = "privileged" | "seccomp" | "appArmor" | "memoryLimit" | "cpuLimit" | "imageVolume";

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
  /** Writes the state of a running container to an archive on the target. Absent where the runtime has no such thing.
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
  /** Undefined when the image is not there. */
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
  /** Bytes that the registry has sent, as they travel. */
  readonly bytes: number;
  /** Total bytes; undefined until every layer's size is known. */
  readonly totalBytes?: number;
  readonly layers: number;
  /** Layers that are on the target, unpacked. */
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
