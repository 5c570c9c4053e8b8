import type { Duplex, Readable, Writable } from "node:stream";
import type * as cri from "../gen/cri.ts";
import { CodedError, type ErrorCode } from "../lib/errors.ts";

/** A container runtime with CRI v1's request and response messages, promises instead of callbacks, and a signal on every call.
 *  Implementations apply the kubelet's timeouts. Every error is coded; a missing object is not_found.
 *  @see https://github.com/kubernetes/cri-api/blob/master/pkg/apis/runtime/v1/api.proto */
export interface Runtime extends Sandboxes, Containers, Images, Stats, Streams, AsyncDisposable {
  version(signal: AbortSignal): Promise<cri.VersionResponse>;
  status(signal: AbortSignal): Promise<cri.StatusResponse>;
  /** The runtime's configuration (cgroup driver). @throws unimplemented on older runtimes. */
  runtimeConfig(signal: AbortSignal): Promise<RuntimeConfig>;
  updateRuntimeConfig(request: cri.UpdateRuntimeConfigRequest, signal: AbortSignal): Promise<void>;
  /** The event stream; absent for runtimes without events. It ends when the signal aborts and throws when the stream breaks: events
   *  lost meanwhile have to be recovered by a relist.
   *  @throws unimplemented. */
  events?(signal: AbortSignal): AsyncIterable<RuntimeEvent>;
  /** Reads container logs over the runtime's own API, for log files that cannot be read. */
  logs?(containerId: string, options: RuntimeLogOptions, signal: AbortSignal): AsyncIterable<LogLine>;
  /** Directories on the target, in addition to the pods' log directory, where the runtime keeps the files that log paths link to. */
  logRoots?(signal: AbortSignal): Promise<readonly string[]>;
  /** Checks whether this runtime supports a pod feature. The runtime may have to be probed first; a pod that needs the feature waits.
   *  Absent when the runtime supports all features.
   *  @returns why the feature is unsupported, a sentence with the remedy; undefined when it is supported. */
  unsupportedReason?(feature: RuntimeFeature, signal: AbortSignal): Promise<string | undefined>;
  /** Time of the last sign that the runtime is alive, Clock.monotonic(), while its event stream would report any failure, so that it need
   *  not be polled. Undefined when it has to be polled now; absent when it always has to be polled. */
  lastAliveAt?(): number | undefined;
  /** Other resources that the implementation created on the target for its node, to be removed with the node; absent when
   *  there are only sandboxes, containers and images. */
  ownedResources?(signal: AbortSignal): Promise<readonly OwnedResource[]>;
}

/** The runtime's configuration. */
export interface RuntimeConfig extends cri.RuntimeConfigResponse {
  /** True when the runtime does not implement RuntimeConfig, so that the cgroup driver was detected in another way. */
  readonly isInferred?: true;
}

/** A resource on the target, other than sandboxes, containers and images, that only this node uses. */
export interface OwnedResource {
  /** Kind and name, as in `Docker network graftlet-node-1`. */
  readonly name: string;
  /** Removes the resource; succeeds if it does not exist. */
  remove(signal: AbortSignal): Promise<void>;
}

/** Failures without a gRPC code of their own: CRI runtimes put the reason into the message.
 *  @see https://github.com/kubernetes/cri-api/blob/master/pkg/errors/errors.go */
export const runtimeReasons = ["RegistryUnavailable", "SignatureValidationFailed", "ImageVolumeMountFailed"] as const;
export type RuntimeReason = (typeof runtimeReasons)[number];

/** A runtime error with one of `runtimeReasons`. */
export class RuntimeError extends CodedError {
  readonly reason: RuntimeReason;
  /** @param message the runtime's own message, which begins with the reason. */
  constructor(code: ErrorCode, reason: RuntimeReason, message: string, options?: ErrorOptions) {
    super(code, message, options);
    this.name = "RuntimeError";
    this.reason = reason;
  }
}

/** Pod features that not every runtime supports; `swapLimit` is a swap limit for a container without a memory limit, `imageSubPath` a part of
 *  an image volume. */
export type RuntimeFeature =
  | "privileged"
  | "seccomp"
  | "appArmor"
  | "memoryLimit"
  | "cpuLimit"
  | "swapLimit"
  | "imageVolume"
  | "imageSubPath"
  | "cdiDevices"
  | "userNamespace";

/** A hint to inspect something, not a state. A sandbox event has its ID in `sandboxId`; a container event has its ID in `containerId`, and
 *  `sandboxId` only if the runtime reports it. `exited` marks the exit of a main process: inspect until the status shows it. `removed`
 *  marks a removal: unknown IDs can be ignored. `listening` marks the start of the stream: relist once. */
export type RuntimeEvent =
  | { readonly kind: "listening" }
  | {
      readonly kind: "changed";
      readonly sandboxId?: string;
      readonly containerId?: string;
      readonly podUid?: string;
      readonly exited?: boolean;
      readonly removed?: boolean;
      /** Time of the event, milliseconds since the epoch by the target's clock. */
      readonly at?: number;
    };

export interface Sandboxes {
  runPodSandbox(request: cri.RunPodSandboxRequest, signal: AbortSignal): Promise<cri.RunPodSandboxResponse>;
  stopPodSandbox(sandboxId: string, signal: AbortSignal): Promise<void>;
  removePodSandbox(sandboxId: string, signal: AbortSignal): Promise<void>;
  podSandboxStatus(sandboxId: string, signal: AbortSignal): Promise<cri.PodSandboxStatusResponse>;
  listPodSandbox(filter: cri.PodSandboxFilter | undefined, signal: AbortSignal): Promise<readonly cri.PodSandbox[]>;
  /** Informs the runtime of new resources of a running pod. Absent for runtimes that do not need them.
   *  @throws unimplemented on older runtimes. */
  updatePodSandboxResources?(request: cri.UpdatePodSandboxResourcesRequest, signal: AbortSignal): Promise<void>;
}

export interface Containers {
  createContainer(request: cri.CreateContainerRequest, signal: AbortSignal): Promise<cri.CreateContainerResponse>;
  startContainer(containerId: string, signal: AbortSignal): Promise<void>;
  /** Stops a container: sends SIGTERM (or the image's stop signal), and SIGKILL after `graceSeconds`. */
  stopContainer(containerId: string, graceSeconds: number, signal: AbortSignal): Promise<void>;
  removeContainer(containerId: string, signal: AbortSignal): Promise<void>;
  listContainers(filter: cri.ContainerFilter | undefined, signal: AbortSignal): Promise<readonly cri.Container[]>;
  containerStatus(containerId: string, signal: AbortSignal): Promise<cri.ContainerStatusResponse>;
  updateContainerResources(request: cri.UpdateContainerResourcesRequest, signal: AbortSignal): Promise<void>;
  reopenContainerLog(containerId: string, signal: AbortSignal): Promise<void>;
  /** Checkpoints a running container to an archive on the target. Absent for runtimes without checkpoints.
   *  @throws unimplemented on older runtimes. */
  checkpointContainer?(request: cri.CheckpointContainerRequest, signal: AbortSignal): Promise<void>;
  /** Runs a command to its end, without a time limit if `timeoutSeconds` is 0.
   *  @throws deadline_exceeded if the command has exceeded its timeout. */
  execSync(
    containerId: string,
    argv: readonly string[],
    timeoutSeconds: number,
    signal: AbortSignal,
  ): Promise<cri.ExecSyncResponse>;
}

export interface Images {
  listImages(signal: AbortSignal): Promise<readonly cri.Image[]>;
  /** Returns an image's status; undefined if the image is missing. */
  imageStatus(image: cri.ImageSpec, signal: AbortSignal): Promise<cri.Image | undefined>;
  /** Pulls an image. The pull has no timeout of its own.
   *  @param onProgress called frequently with the progress of the pull, by runtimes that report it.
   *  @returns the image reference to create containers with. */
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

/** Endpoint of a stream at the runtime's own streaming server, which speaks SPDY. It can be used once. */
export interface StreamEndpoint {
  /** Path and query of the request line. */
  readonly path: string;
  /** Host header value. */
  readonly host: string;
  /** Opens the connection (TLS included where the endpoint is https). */
  dial(signal: AbortSignal): Promise<Duplex>;
}

/** Columns and rows of a terminal. */
export interface TerminalSize {
  readonly width: number;
  readonly height: number;
}

/** Standard streams of a command in a container, as the protocol side passes them to the command's runner. A stream fails when the client
 *  disconnects; its errors need no listener. */
export interface CommandStreams {
  /** The client's input; ends at the client's half-close. Present iff requested. */
  readonly stdin?: Readable;
  /** Present iff requested. */
  readonly stdout?: Writable;
  /** Present iff requested; never with a terminal. */
  readonly stderr?: Writable;
  readonly tty: boolean;
  /** Terminal sizes in order; a slow reader gets only the newest. Empty without a terminal. */
  readonly sizes: AsyncIterable<TerminalSize>;
}

/** Runs a command on its streams, until it has ended and all its output is written. @param signal aborts when the client disconnects.
 *  @returns the exit code. @throws the error that the client gets instead. */
export type RunCommand = (streams: CommandStreams, signal: AbortSignal) => Promise<number>;

/** Connects to a port inside a pod. @throws the reason of a failure. */
export type ConnectPort = (port: number, signal: AbortSignal) => Promise<Duplex>;

/** Streams to containers and pods. A runtime without a streaming server returns functions, which are called when the client's streams are
 *  open. */
export interface Streams {
  exec(request: cri.ExecRequest, signal: AbortSignal): Promise<StreamEndpoint | RunCommand>;
  attach(request: cri.AttachRequest, signal: AbortSignal): Promise<StreamEndpoint | RunCommand>;
  portForward(request: cri.PortForwardRequest, signal: AbortSignal): Promise<StreamEndpoint | ConnectPort>;
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
  /** Text of the line, with its newline; a `partial` line has none. */
  readonly text: Buffer;
  readonly partial: boolean;
}
