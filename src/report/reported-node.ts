import type { Node, Pod } from "../objects.ts";
import type { EventType } from "../pipeline.ts";
import type { LinkTrouble, TargetLink } from "../seams/provider.ts";
import type { KubeletServerDeps, ServerConfig } from "../server/ports.ts";
import { createSignal } from "../lib/signal.ts";

// Reports of a node to its process, shown by `graftlet status` and the dashboard.

/** A running node: the data of its kubelet API, and who may read it. */
export interface NodeIntrospection {
  /** True for a standalone node without an API server, and so without a Node object. */
  readonly standalone: boolean;
  /** The Node as last read from the API server, or as a standalone node would register it; undefined if there is none. */
  node(): Node | undefined;
  /** Calls back when the Node, or a pod, has changed. @returns a function that unsubscribes. */
  onChange(listener: () => void): () => void;
  /** The pods of /pods, with their current statuses. */
  pods(): readonly Pod[];
  /** Their number. */
  podCount(): number;
  /** The response of /stats/summary. @throws CodedError if nothing can be measured. */
  summary(signal: AbortSignal): Promise<object>;
  /** Absent if the kubelet API is not served. */
  readonly gate?: ReadGate;
}

/** Authentication and authorization of a node's kubelet API. */
export interface ReadGate extends Pick<KubeletServerDeps, "certificate" | "clientCA" | "authenticator" | "authorizer"> {
  readonly config: Pick<ServerConfig, "anonymous" | "tlsMinVersion" | "tlsCipherSuites">;
}

/** The link to a target: `local` for graftlet's own machine. */
export type NodeLink = "local" | Pick<TargetLink, "trouble" | "onChange">;

/** Object of an event (`involvedObject`). */
export interface EventObject {
  readonly kind?: string;
  readonly namespace?: string;
  readonly name?: string;
}

/** Progress of a node's start. */
export interface NodeProgress {
  /** The node has credentials for the API server. */
  readonly isIdentified: boolean;
  /** The node's target is locked. */
  readonly isClaimed: boolean;
  /** Why the node does not run, as last reported; undefined while it starts or runs. */
  readonly trouble: LinkTrouble | undefined;
}

/** Receives reports of a node while it starts, runs and stops. */
export interface NodeReporter {
  /** Called with each step that a node has reached, or lost. */
  onProgress(change: Partial<NodeProgress>): void;
  /** @param link undefined if the node has no target anymore. */
  onTargetOpened(link: NodeLink | undefined): void;
  /** @param work undefined if the node has stopped. */
  onRunning(work: NodeIntrospection | undefined): void;
  /** Called with each event that the node writes; absent if events are not needed. */
  readonly event?: (about: EventObject, type: EventType, reason: string, message: string) => void;
}

export interface ReportedNode {
  readonly name: string;
  readonly provider: string;
  /** Link to the node's target; undefined before the target is opened. */
  link(): NodeLink | undefined;
  introspection(): NodeIntrospection | undefined;
  progress(): NodeProgress;
  /** Calls back when the node has started, and when it has stopped. @returns a function that unsubscribes. */
  onRunningChange(listener: () => void): () => void;
  /** Calls back at any change: of the progress, the link, the Node, its pods, and when the node has started or stopped.
   *  @returns a function that unsubscribes. */
  onChange(listener: () => void): () => void;
}

/** Stores a node's reports. @param event called with its events. */
export function createReportedNode(
  { name, provider }: Pick<ReportedNode, "name" | "provider">,
  event?: NodeReporter["event"],
): ReportedNode & NodeReporter {
  let link: NodeLink | undefined;
  let work: NodeIntrospection | undefined;
  let progress: NodeProgress = { isIdentified: false, isClaimed: false, trouble: undefined };
  const running = createSignal();
  const changed = createSignal();
  let stopFollowingLink: (() => void) | undefined;
  let stopFollowingWork: (() => void) | undefined;
  return {
    name,
    provider,
    link: () => link,
    introspection: () => work,
    progress: () => progress,
    onRunningChange: running.subscribe,
    onChange: changed.subscribe,
    onTargetOpened(now) {
      link = now;
      stopFollowingLink?.();
      stopFollowingLink = typeof now === "object" ? now.onChange(changed.send) : undefined;
      changed.send();
    },
    onProgress(change) {
      progress = { ...progress, ...change };
      changed.send();
    },
    onRunning(now) {
      work = now;
      stopFollowingWork?.();
      stopFollowingWork = now?.onChange(changed.send);
      running.send();
      changed.send();
    },
    ...(event && { event }),
  };
}
