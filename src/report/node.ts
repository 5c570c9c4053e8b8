import type { Reloading } from "../lib/reloading.ts";
import type { Node, Pod } from "../objects.ts";
import type { EventType } from "../pipeline.ts";
import type { LinkTrouble } from "../seams/provider.ts";
import type { Authenticator, Authorizer, ServerConfig } from "../server/ports.ts";

// News of a node for its process: `graftlet status` and the page read them.

/** A node at work: what its kubelet API serves, and who may see that. */
export interface NodeWork {
  /** There is no API server: no Node says whether the node is ready. */
  readonly alone: boolean;
  /** The Node as the API server last showed it, or as a standalone node would register it; undefined while there is none. */
  node(): Node | undefined;
  /** The pods, with their current statuses: those of /pods. */
  pods(): readonly Pod[];
  /** The answer to /stats/summary. @throws CodedError if nothing can be measured. */
  summary(signal: AbortSignal): Promise<object>;
  /** Absent where the kubelet API is not served. */
  readonly gate?: ReadGate;
}

/** Authentication and authorization of a node's kubelet API. */
export interface ReadGate {
  readonly config: Pick<ServerConfig, "anonymous" | "tlsMinVersion" | "tlsCipherSuites">;
  readonly certificate: Reloading<{ readonly certificate: string; readonly key: string } | undefined>;
  readonly clientCA: Reloading<string | undefined>;
  readonly authenticator?: Authenticator;
  readonly authorizer: Authorizer;
}

/** The way to a target: `local` where it is graftlet's own machine. */
export type NodeLink = "local" | { trouble(): LinkTrouble | undefined };

/** Object of an event, as its `involvedObject`. */
export interface Subject {
  readonly kind?: string;
  readonly namespace?: string;
  readonly name?: string;
}

/** News of a node while it starts, works and stops. */
export interface NodeTelling {
  /** @param link undefined when the node has no target any more. */
  opened(link: NodeLink | undefined): void;
  /** @param work undefined when the node does not work any more. */
  works(work: NodeWork | undefined): void;
  /** Takes an event that the node writes; absent where nobody reads them. */
  readonly event?: (about: Subject, type: EventType, reason: string, message: string) => void;
}

/** A node, for those who read what it told. */
export interface ReportedNode {
  readonly name: string;
  readonly provider: string;
  /** Undefined before there is a target. */
  link(): NodeLink | undefined;
  work(): NodeWork | undefined;
  /** Calls back when the node begins to work, and when it ends. @returns what stops that. */
  onWork(listener: () => void): () => void;
}

/** Keeps what a node tells. @param event takes its events. */
export function createReportedNode(
  { name, provider }: Pick<ReportedNode, "name" | "provider">,
  event?: NodeTelling["event"],
): ReportedNode & NodeTelling {
  let link: NodeLink | undefined;
  let work: NodeWork | undefined;
  const listeners = new Set<() => void>();
  return {
    name,
    provider,
    link: () => link,
    work: () => work,
    onWork(listener) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    opened: (now) => void (link = now),
    works(now) {
      work = now;
      for (const listener of listeners) listener();
    },
    ...(event && { event }),
  };
}
