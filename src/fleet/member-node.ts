import type { NodeConfig } from "../config/node-config.ts";
import type { FencingToken } from "../host/lock.ts";
import type { RootClaimant } from "../host/root-owner.ts";
import { CodedError } from "../lib/errors.ts";
import { createTrigger } from "../lib/trigger.ts";
import type { ConfiguredMetadata, ConfiguredMetadataSource } from "../node/configured-metadata.ts";
import type { Secret } from "../objects.ts";
import type { NodeReporter } from "../report/reported-node.ts";
import { acceptedMachine, takenOver, type GraftedNode, type GraftedNodeSpec } from "./grafted-node.ts";

export interface RunParts {
  readonly report: NodeReporter;
  /** The Node's labels, annotations and taints according to the object. */
  readonly metadata: ConfiguredMetadataSource;
  /** Returns the ID of the only machine on which the node may run; undefined if it has had none. */
  readonly expectedMachine: () => string | undefined;
  /** Identifies this replica among those that serve the object one after the other. */
  readonly fencingToken: FencingToken | undefined;
  /** Asks the API server whether this replica still owns the object; undefined for an object that is not shared. */
  readonly isStillOwner: ((signal: AbortSignal) => Promise<boolean>) | undefined;
  /** The object for which the node runs. */
  readonly claimant: RootClaimant;
  /** The Secret of that name in the fleet's namespace as last seen. */
  readonly lastSeenSecret: (name: string) => Secret | undefined;
}

export interface MemberNodeDeps {
  /** Runs a node until the signal aborts. */
  run(config: NodeConfig, parts: RunParts, signal: AbortSignal): Promise<unknown>;
  readonly report: NodeReporter;
}

export interface StartParts
  extends Pick<RunParts, "expectedMachine" | "fencingToken" | "isStillOwner" | "claimant" | "lastSeenSecret"> {
  /** The pool's template when the node starts. */
  readonly template: string;
}

interface RunningNode {
  /** The specification that it runs with. */
  readonly specification: string;
  /** The pool's template at that time. */
  readonly template: string;
  readonly metadata: ReturnType<typeof changeableMetadata>;
  readonly stop: AbortController;
  readonly ended: Promise<unknown>;
}

const noProgress = { isIdentified: false, isClaimed: false, trouble: undefined };

/** The node of one object: at most one runs at a time. */
export function createMemberNode({ run, report }: MemberNodeDeps) {
  let running: RunningNode | undefined;
  return {
    isRunning: () => running !== undefined,
    /** True if a node is running and this specification does not require a restart. */
    runsWith: (object: GraftedNode) => running?.specification === specificationOf(object),
    /** The template that the node was started with; undefined if none runs. */
    template: () => running?.template,
    /** Applies changes that need no restart: the Node's labels, annotations and taints. @param template the pool's current template. Its
     *  other changes have no effect on this node, because the object overrides these fields. */
    takeOver(config: NodeConfig, template: string): void {
      running?.metadata.replace(config);
      if (running) running = { ...running, template };
    },
    start(config: NodeConfig, object: GraftedNode, { template, ...own }: StartParts): void {
      const stop = new AbortController();
      const metadata = changeableMetadata(config);
      const parts = { report, metadata, ...own };
      const ended = run(config, parts, stop.signal).finally(() => report.onProgress(noProgress));
      running = { specification: specificationOf(object), template, metadata, stop, ended };
    },
    /** Stops the node and waits until it has ended. Its pods keep running. */
    async stop(): Promise<void> {
      const node = running;
      running = undefined;
      node?.stop.abort(new CodedError("cancelled", "the node is stopped"));
      await node?.ended;
    },
  };
}

/** Fields of a specification that change while the node runs. */
const changeable: readonly string[] = [
  "labels",
  "annotations",
  "taints",
  "defaultTaint",
  "paused",
  "active",
  "poolRef",
  "deletionPolicy",
  "drainTimeout",
  "terminationGracePeriod",
];

/** The part of an object whose changes restart the node. It includes the ID of an accepted replacement, and the owner of the root directory
 *  that the object may take over, so that these are tried at once. */
function specificationOf(object: GraftedNode): string {
  return `${startingPart(object.spec)} ${acceptedMachine(object) ?? ""} ${takenOver(object) ?? ""}`;
}

/** The part of a specification, or of a pool's template, whose changes restart a node. */
export function startingPart(spec: Partial<GraftedNodeSpec>): string {
  return JSON.stringify(Object.entries(spec).filter(([field]) => !changeable.includes(field)));
}

/** The metadata of a node's configuration, until `replace` is called with a later configuration. */
function changeableMetadata(first: NodeConfig): ConfiguredMetadataSource & { replace(config: NodeConfig): void } {
  const changed = createTrigger();
  let current = metadataOf(first);
  return {
    current: () => current,
    changed: changed.fired,
    replace(config) {
      const next = metadataOf(config);
      if (JSON.stringify(next) === JSON.stringify(current)) return;
      current = next;
      changed.fire();
    },
  };
}

function metadataOf({ configured }: NodeConfig): ConfiguredMetadata {
  return configured ?? { labels: {}, annotations: {}, taints: [] };
}
