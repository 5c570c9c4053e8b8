import type * as cri from "../gen/cri.ts";
import type { TargetClock } from "../host/target-clock.ts";
import type { Clock } from "../lib/clock.ts";
import type { Logger } from "../lib/log.ts";
import type { Reloading } from "../lib/reloading.ts";
import type { ServingMeasures } from "../measures.ts";
import type { LogReader, PodCache, PodStore, StatusReader } from "../pipeline.ts";
import type { HostFs } from "../seams/host.ts";
import type { Runtime, Streams } from "../seams/runtime.ts";
import type { Strangers } from "./strangers.ts";

/** Who calls. */
export interface User {
  readonly name: string;
  readonly uid?: string;
  readonly groups: readonly string[];
  readonly extra?: Readonly<Record<string, readonly string[]>>;
}

/** Finds out who holds a bearer token. */
export interface Authenticator {
  /** Undefined when the token is nobody's.
   *  @param from the address of whoever shows it.
   *  @throws CodedError resource_exhausted when too many ask at once; anything else when it cannot be found out. */
  byToken(token: string, from: string, signal: AbortSignal): Promise<User | undefined>;
}

/** Decides whether somebody may do something with this node. */
export interface Authorizer {
  /** @param verb get, create, update, patch, delete; empty for other HTTP methods.
   *  @param subresource of nodes, such as `proxy`.
   *  @param path of the request.
   *  @throws when it cannot be decided. */
  allowed(user: User, verb: string, subresource: string, path: string, signal: AbortSignal): Promise<boolean>;
}

/** KubeletConfiguration authorization.mode AlwaysAllow. */
export const alwaysAllow: Authorizer = { allowed: () => Promise.resolve(true) };

/** Where nobody can be asked. */
export const neverAllow: Authorizer = { allowed: () => Promise.resolve(false) };

/** What the kubelet API asks of the runtime. */
export interface ServedRuntime extends Streams, Pick<Runtime, "checkpointContainer" | "logRoots"> {
  listPodSandbox(filter: cri.PodSandboxFilter | undefined, signal: AbortSignal): Promise<readonly cri.PodSandbox[]>;
  listContainers(filter: cri.ContainerFilter | undefined, signal: AbortSignal): Promise<readonly cri.Container[]>;
  containerStatus(containerId: string, signal: AbortSignal): Promise<cri.ContainerStatusResponse>;
  execSync(
    containerId: string,
    argv: readonly string[],
    timeoutSeconds: number,
    signal: AbortSignal,
  ): Promise<cri.ExecSyncResponse>;
}

/** What of the configuration the kubelet API needs; names and values as in KubeletConfiguration where it has them. */
export interface ServerConfig {
  readonly address: string;
  readonly port: number;
  readonly nodeName: string;
  /** authentication.anonymous.enabled */
  readonly anonymous: boolean;
  readonly enableDebuggingHandlers: boolean;
  /** VersionTLS12 or VersionTLS13; empty is VersionTLS12. */
  readonly tlsMinVersion: string;
  readonly tlsCipherSuites: readonly string[];
  readonly enableSystemLogHandler: boolean;
  /** The target's root directory. */
  readonly rootDir: string;
  /** Feature gate PodLogsQuerySplitStreams. */
  readonly splitLogStreams: boolean;
}

/** What is told of the use of the node, its pods and their containers. */
export interface ServedStats {
  /** The answer to /stats/summary. @throws CodedError when nothing can be measured. */
  summary(onlyCpuAndMemory: boolean, signal: AbortSignal): Promise<object>;
  /** What /metrics/resource and /metrics/cadvisor say, in Prometheus' exposition format. */
  resource(signal: AbortSignal): Promise<string>;
  cadvisor(signal: AbortSignal): Promise<string>;
}

export interface KubeletServerDeps {
  readonly config: ServerConfig;
  readonly certificate: Reloading<{ readonly certificate: string; readonly key: string } | undefined>;
  /** Certificates in PEM that sign clients' certificates; without any, no client certificate counts. */
  readonly clientCA: Reloading<string | undefined>;
  /** Absent where authentication.webhook is disabled. */
  readonly authenticator?: Authenticator;
  readonly authorizer: Authorizer;
  /** The process's: its connections of peers that are not known. */
  readonly strangers: Strangers;
  readonly pods: PodStore;
  /** Resolves when all that the sources wanted at first has been taken in: a pod that is not there before may only not be known. */
  readonly podsKnown: Promise<void>;
  readonly statuses: StatusReader;
  readonly runtimePods: PodCache;
  readonly runtime: ServedRuntime;
  readonly logs: LogReader;
  /** The target's. */
  readonly files: Pick<HostFs, "apply" | "realpath" | "lstat" | "list" | "open">;
  /** KubeletConfiguration.podLogsDir. */
  readonly podLogsDir: string;
  /** Why the sync loop is not healthy; undefined when it is. */
  readonly syncLoop: () => string | undefined;
  /** What /metrics and /metrics/probes say, in Prometheus' exposition format. */
  readonly metrics: { text(): Promise<string>; probes(): Promise<string> };
  readonly stats: ServedStats;
  /** Counts requests. */
  readonly serving: ServingMeasures;
  /** KubeletConfiguration in force, with kind and apiVersion, for /configz. */
  readonly configz: () => object;
  readonly clock: Clock;
  /** Log lines are stamped by the target. */
  readonly targetClock: Pick<TargetClock, "now">;
  readonly log: Logger;
}
