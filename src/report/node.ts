import type { Reloading } from "../lib/reloading.ts";
import type { Node, Pod } from "../objects.ts";
import type { EventType } from "../pipeline.ts";
import type { LinkTrouble } from "../seams/provider.ts";
import type { Authenticator, Authorizer, ServerConfig } from "../server/ports.ts";

// What a node gives to the page: what the kubelet API serves of it, and who may see that.

export interface PageView {
  /** The Node object as the cluster has it; undefined while there is none. */
  node(): Node | undefined;
  /** The pods, with their current statuses: those of /pods. */
  pods(): readonly Pod[];
  /** The answer to /stats/summary. @throws CodedError if nothing can be measured. */
  summary(signal: AbortSignal): Promise<object>;
  /** Absent where the kubelet API is not served: then the page shows the node on loopback only. */
  readonly gate?: PageGate;
}

/** Authentication and authorization of a node's kubelet API. */
export interface PageGate {
  readonly config: Pick<ServerConfig, "anonymous" | "tlsMinVersion" | "tlsCipherSuites">;
  readonly certificate: Reloading<{ readonly certificate: string; readonly key: string } | undefined>;
  readonly clientCA: Reloading<string | undefined>;
  readonly authenticator?: Authenticator;
  readonly authorizer: Authorizer;
}

/** A node's end of the page. */
export interface NodePage {
  /** The node has its target. @param link that to another machine; undefined for this one. */
  linked(link: PageLink | undefined): void;
  /** Sets what is shown from now on; undefined when the node does not run. */
  show(view: PageView | undefined): void;
  event(about: PageSubject, type: EventType, reason: string, message: string): void;
}

export interface PageLink {
  trouble(): LinkTrouble | undefined;
}

/** What an event is about, as its `involvedObject`. */
export interface PageSubject {
  readonly kind?: string;
  readonly namespace?: string;
  readonly name?: string;
}
