import type { AccessReview, User } from "../api/access.ts";
import type { TargetClock } from "../host/target-clock.ts";
import type { ClockAndLog } from "../lib/log.ts";
import type { Reloading } from "../lib/reloading.ts";
import type { Tracer } from "../lib/tracer.ts";
import type { Verbosity } from "../lib/verbosity.ts";
import type { LogReader, PodCache, PodStore, StatusReader } from "../pipeline.ts";
import type { Host, HostFs } from "../seams/host.ts";
import type { Runtime, Streams } from "../seams/runtime.ts";
import type { Profiles } from "./profiler.ts";
import type { UnauthenticatedConnections } from "./unauthenticated-connections.ts";

/** Requests to the kubelet API. */
export interface ServingMeasures {
  /** @param area first segment of the path. @returns a function to call when the request has ended. */
  began(method: string, area: string): (ms: number) => void;
  /** A command or port-forward was requested over WebSocket. @param area `exec`, `attach` or `portForward`. */
  webSocket(area: string): void;
}

/** Health checks made by the aggregate health endpoints. */
export interface HealthMeasures {
  checked(name: string, isHealthy: boolean): void;
}

/** Authenticates bearer tokens. */
export interface Authenticator {
  /** Undefined for an invalid token. @param from address of the caller. @throws CodedError resource_exhausted beyond the limit of
   *  reviews; other errors if the review fails. */
  byToken(token: string, from: string, signal: AbortSignal): Promise<User | undefined>;
}

/** Decides whether a user may perform an action on this node. */
export type Authorizer = Pick<AccessReview, "allowed">;

/** KubeletConfiguration authorization.mode AlwaysAllow. */
export const alwaysAllow: Authorizer = { allowed: () => Promise.resolve(true) };

/** For nodes without an API server. */
export const neverAllow: Authorizer = { allowed: () => Promise.resolve(false) };

/** Runtime functions of the kubelet API. */
export type ServedRuntime = Streams &
  Pick<
    Runtime,
    "checkpointContainer" | "logRoots" | "listPodSandbox" | "listContainers" | "containerStatus" | "execSync"
  >;

/** Configuration of the kubelet API; names and values as in KubeletConfiguration where possible. */
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
  readonly enableSystemLogQuery: boolean;
  readonly enableDebugFlagsHandler: boolean;
  readonly enableProfilingHandler: boolean;
  /** The target's root directory. */
  readonly rootDir: string;
  /** Feature gate PodLogsQuerySplitStreams. */
  readonly splitLogStreams: boolean;
  /** Feature gates ComponentFlagz and ComponentStatusz. */
  readonly flagz: boolean;
  readonly statusz: boolean;
}

/** Resource usage of the node, its pods and their containers. */
export interface ServedStats {
  /** The response to /stats/summary. @throws CodedError if nothing can be measured. */
  summary(onlyCpuAndMemory: boolean, signal: AbortSignal): Promise<object>;
  /** Contents of /metrics/resource and /metrics/cadvisor, in Prometheus' exposition format. */
  resource(signal: AbortSignal): Promise<string>;
  cadvisor(signal: AbortSignal): Promise<string>;
}

export interface KubeletServerDeps extends ClockAndLog {
  readonly config: ServerConfig;
  readonly certificate: Reloading<{ readonly certificate: string; readonly key: string } | undefined>;
  /** PEM certificates that sign clients' certificates; if empty, no client certificate is accepted. */
  readonly clientCA: Reloading<string | undefined>;
  /** Absent if authentication.webhook is disabled. */
  readonly authenticator?: Authenticator;
  readonly authorizer: Authorizer;
  /** The process's connections of unauthorized clients. */
  readonly unauthenticated: UnauthenticatedConnections;
  /** Log level of the process. */
  readonly verbosity: Verbosity;
  /** Profiles of the process. */
  readonly profiles: Profiles;
  readonly desired: PodStore;
  /** Resolves once the initial pods of all sources are known: before that, a missing pod may only be unknown. */
  readonly podsKnown: Promise<void>;
  readonly status: StatusReader;
  readonly podCache: PodCache;
  readonly runtime: ServedRuntime;
  readonly logs: LogReader;
  /** The target's files. */
  readonly files: Pick<HostFs, "apply" | "realpath" | "lstat" | "list" | "open">;
  /** Starts a command on the target for a user of the kubelet API. */
  readonly spawn: Host["spawn"];
  /** KubeletConfiguration.podLogsDir. */
  readonly podLogsDir: string;
  /** Reason why the sync loop is unhealthy; undefined if healthy. */
  readonly syncLoop: () => string | undefined;
  /** Contents of /metrics, /metrics/probes and /metrics/slis, in Prometheus' exposition format. */
  readonly metrics: {
    text(signal: AbortSignal): Promise<string>;
    probes(): Promise<string>;
    slis(): Promise<string>;
    /** Empties /metrics/slis. */
    resetSlis(): void;
  };
  readonly stats: ServedStats;
  /** Counts requests. */
  readonly serving: ServingMeasures;
  readonly health: HealthMeasures;
  readonly tracer: Tracer;
  /** The effective KubeletConfiguration, with kind and apiVersion, for /configz. */
  readonly configz: () => object;
  /** The values of all flags of the command line, by flag. */
  readonly flags: Readonly<Record<string, string>>;
  /** The target's clock, which stamps log lines. */
  readonly targetClock: Pick<TargetClock, "now">;
}
