import type { ApiClient } from "../api/client.ts";
import { hasCode } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import type { NodeStartMeasures } from "./registration.ts";
import { pause } from "../lib/pause.ts";
import { rfc3339 } from "../lib/rfc3339.ts";
import type { Node, NodeCondition, NodeStatus } from "../objects.ts";
import type { EventSink, NodeSource } from "../pipeline.ts";
import { quantityNumber } from "../pod/quantity.ts";
import { nodeReference } from "../pod/reference.ts";
import { type NodeConditionState, changedConditionReasons, pressureTypes, withTimes } from "./conditions.ts";

/** The desired node status, without the conditions' times. */
export interface DesiredStatus {
  readonly status: NodeStatus;
  readonly verdicts: readonly NodeConditionState[];
  /** Condition types to remove from the node. */
  readonly absent?: readonly string[];
  /** True if the node is not ready for a reason that does not resolve itself shortly after a start. */
  readonly certain?: boolean;
}

export interface HeartbeatDeps extends ClockAndLog {
  readonly client: ApiClient;
  readonly nodes: NodeSource;
  readonly nodeName: string;
  readonly desired: (signal: AbortSignal) => Promise<DesiredStatus>;
  /** Asks whether this process is still told to serve the node; absent if no other process may be. */
  readonly isStillOwner?: ((signal: AbortSignal) => Promise<boolean>) | undefined;
  readonly register: (signal: AbortSignal) => Promise<void>;
  readonly registerNode: boolean;
  /** True if another process has served the node before. */
  readonly isTakenOver: boolean;
  /** Labels that the Node must have; they are restored together with a status update. */
  readonly labels: Readonly<Record<string, string>>;
  /** KubeletConfiguration.nodeStatusUpdateFrequency and nodeStatusReportFrequency, milliseconds. */
  readonly updateMs: number;
  readonly reportMs: number;
  readonly measures: Pick<NodeStartMeasures, "ready">;
  readonly events: EventSink;
}

export type Heartbeat = ReturnType<typeof createHeartbeat>;

/** Update interval at startup until the node is ready; after a change the interval grows from this again. */
const fastIntervalMs = 100;
const fastForMs = 120_000;
/** Grace period after a start, milliseconds: a node that was ready stays so while the runtime has not answered yet. */
const startupGraceMs = 5_000;

/** Registers the Node and keeps its status up to date: checked every ten seconds, written on a change or after five minutes. The first
 *  write after a change or a start is up to half of that earlier or later. (kubelet, calculateDelay)
 *  @see https://kubernetes.io/docs/reference/node/node-status/#heartbeats */
export function createHeartbeat(deps: HeartbeatDeps) {
  const { client, nodes, nodeName, clock, log } = deps;
  const reports = createReports(deps);
  let hurried = Promise.withResolvers<void>();
  /** Milliseconds until the next update of a node that is not ready. */
  let retryDelayMs = deps.updateMs;
  let missing = 0;
  let startedAt = 0;
  let registered = !deps.registerNode;
  const reportCordon = createCordonEvents(deps);
  const announce = createAnnouncements(deps);

  const updateStatus = async (signal: AbortSignal): Promise<boolean> => {
    const node = nodes.node();
    // An existing Node is registered once, too, as by the kubelet, which reconciles its metadata.
    if (!registered || (!node && deps.registerNode)) await deps.register(signal);
    registered = true;
    if (!node) return false;
    reportCordon(node);
    const desired = await deps.desired(signal);
    const ready = desired.verdicts.some(({ type, status }) => type === "Ready" && status === "True");
    const settling = !desired.certain && clock.monotonic() - startedAt < startupGraceMs;
    if (!ready && showsReady(node) && settling) return false;
    const { changed, patch, status } = nextStatus(node, desired, deps);
    if (!changed && !reports.areDue()) return ready;
    // The target ends the link of a former owner, which is no trouble of the node.
    if (!ready && (await deps.isStillOwner?.(signal)) === false) return false;
    await client.patch(`/api/v1/nodes/${nodeName}/status`, { type: "strategic", body: patch }, { signal });
    reports.written(changed);
    announce(node, status);
    return ready;
  };

  /** Waits for the next round; `hurry` shortens the wait. */
  const rest = (ms: number, signal: AbortSignal) => {
    const hurry = hurried.promise.then(() => clock.sleep(fastIntervalMs, signal).catch(() => undefined));
    return pause(clock, ms, hurry, signal);
  };

  return {
    name: "node-status",
    /** Requests an immediate update after a change that affects the status. */
    triggerUpdate() {
      retryDelayMs = fastIntervalMs;
      hurried.resolve();
    },
    async run(signal: AbortSignal) {
      startedAt = clock.monotonic();
      let fastUntil = startedAt + fastForMs;
      while (!signal.aborted) {
        let ready = false;
        if (deps.registerNode && !nodes.node()) fastUntil = clock.monotonic() + fastForMs;
        hurried = Promise.withResolvers<void>();
        try {
          ready = await updateStatus(signal);
          missing = 0;
        } catch (error) {
          if (signal.aborted) return;
          if (missing++ === 0 && !hasCode(error, "not_found"))
            log.warn({ err: error }, "cannot update node status; retrying");
        }
        if (ready) [fastUntil, retryDelayMs] = [0, deps.updateMs];
        else retryDelayMs = Math.min(retryDelayMs * 2, deps.updateMs);
        const fast = clock.monotonic() < fastUntil && missing === 0;
        const slow = missing === 0 ? retryDelayMs : deps.updateMs;
        await rest(fast ? fastIntervalMs : slow * clock.jitter(1, 1.04), signal);
      }
    },
  };
}

/** Returns the status that the Node should have, and the patch that leads to it. */
function nextStatus(
  node: Node,
  { status: own, verdicts, absent = [] }: DesiredStatus,
  { clock, labels: wanted }: Pick<HeartbeatDeps, "clock" | "labels">,
) {
  const before = node.status?.conditions ?? [];
  const status = withOthers(own, node);
  const gone = before.filter(({ type }) => absent.includes(type));
  const conditions = withTimes(verdicts, before, rfc3339(clock.now()));
  const labels = Object.entries(wanted).filter(([name, value]) => node.metadata.labels?.[name] !== value);
  return {
    changed: gone.length > 0 || labels.length > 0 || differs(node, status, verdicts),
    patch: {
      ...(labels.length > 0 && { metadata: { labels: Object.fromEntries(labels) } }),
      status: { ...patchOf(node, status), conditions: [...conditions, ...gone.map(deletion)] },
    },
    status: { ...status, conditions },
  };
}

/** Decides when an unchanged status is due. Nodes that changed or started together do not keep reporting together. */
function createReports({ reportMs, clock }: Pick<HeartbeatDeps, "reportMs" | "clock">) {
  let dueAt: number | undefined;
  return {
    areDue: () => dueAt === undefined || clock.monotonic() >= dueAt,
    written(changed: boolean) {
      const spread = changed || dueAt === undefined ? clock.jitter(0.5, 1.5) : 1;
      dueAt = clock.monotonic() + reportMs * spread;
    },
  };
}

/** Records when the Node becomes ready, and emits events for changed conditions and for a reboot since the last status update.
 *  An agent that registers emits each pressure once, regardless of the Node's previous status, as a kubelet recreates its Node (initialNode).
 *  An agent that takes over the node emits changes only. */
function createAnnouncements(deps: HeartbeatDeps): (before: Node, now: NodeStatus) => void {
  const { events, nodeName, measures } = deps;
  const untold = new Set<string>(deps.registerNode && !deps.isTakenOver ? pressureTypes : []);
  let hasRebooted = false;
  return (node, now) => {
    const before = (node.status?.conditions ?? []).filter(({ type }) => !untold.has(type));
    const conditions = now.conditions ?? [];
    if (showsReady({ ...node, status: now })) measures.ready();
    for (const reason of changedConditionReasons(before, conditions)) emitStatusEvent(deps, reason);
    for (const { type } of conditions) untold.delete(type);
    const boot = node.status?.nodeInfo?.bootID;
    const booted = now.nodeInfo?.bootID;
    if (!boot || !booted || boot === booted || hasRebooted) return;
    // The watch may still return the old Node for some time after the patch.
    hasRebooted = true;
    const message = `Node ${nodeName} has been rebooted, boot id: ${booted}`;
    events.event(nodeReference(nodeName), "Warning", "Rebooted", message);
  };
}

/** Emits an event when the node is cordoned or uncordoned. */
function createCordonEvents(deps: HeartbeatDeps): (node: Node) => void {
  let wasUnschedulable = false;
  return ({ spec }) => {
    const { unschedulable = false } = spec ?? {};
    if (unschedulable !== wasUnschedulable)
      emitStatusEvent(deps, unschedulable ? "NodeNotSchedulable" : "NodeSchedulable");
    wasUnschedulable = unschedulable;
  };
}

function emitStatusEvent({ events, nodeName }: HeartbeatDeps, reason: string): void {
  events.event(nodeReference(nodeName), "Normal", reason, `Node ${nodeName} status is now: ${reason}`);
}

function showsReady(node: Node): boolean {
  return node.status?.conditions?.some(({ type, status }) => type === "Ready" && status === "True") ?? false;
}

/** True if the API server's status differs, ignoring heartbeat times. */
function differs(node: Node, wanted: NodeStatus, verdicts: readonly NodeConditionState[]): boolean {
  const shown = node.status ?? {};
  const conditions = verdicts.map(({ type, status, reason, message }) => {
    const old = shown.conditions?.find((each) => each.type === type);
    return old?.status === status && old.reason === reason && old.message === message;
  });
  if (conditions.includes(false)) return true;
  const { capacity, allocatable, ...rest } = wanted;
  const ownCapacity = Object.entries(shown.capacity ?? {}).filter(
    ([name]) => isNative(name) || name in (capacity ?? {}),
  );
  if (!sameAmounts(capacity, Object.fromEntries(ownCapacity))) return true;
  if (!sameAmounts(allocatable, shown.allocatable)) return true;
  return Object.entries(rest).some(([field, value]) => !equal(value, shown[field as keyof NodeStatus]));
}

/** Compares quantities by value: the API server normalizes them, so 1048576Ki comes back as 1Gi. */
function sameAmounts(wanted: NodeStatus["capacity"] = {}, shown: NodeStatus["capacity"] = {}): boolean {
  const names = Object.keys(shown);
  return (
    names.length === Object.keys(wanted).length &&
    names.every((name) => quantityNumber(wanted[name] ?? "0") === quantityNumber(shown[name] ?? "0"))
  );
}

/** Adds resources that others have added to the node's capacity to its allocatable resources.
 *  @see https://kubernetes.io/docs/tasks/administer-cluster/extended-resource-node/ */
function withOthers(own: NodeStatus, { status }: Node): NodeStatus {
  const others = Object.entries(status?.capacity ?? {}).filter(
    ([name]) => !isNative(name) && !(name in (own.capacity ?? {})),
  );
  return others.length === 0 ? own : { ...own, allocatable: { ...own.allocatable, ...Object.fromEntries(others) } };
}

/** True for native resources; extended resources, which others may add to the node, have a domain in their name. */
function isNative(resource: string): boolean {
  return !resource.includes("/");
}

function equal(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  if (isEmpty(a) && isEmpty(b)) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  const keys = new Set([...Object.keys(a), ...Object.keys(b)]);
  return [...keys].every((key) => equal((a as Record<string, unknown>)[key], (b as Record<string, unknown>)[key]));
}

/** True for empty values, which the API server omits. */
function isEmpty(value: unknown): boolean {
  return value === undefined || value === "" || value === false || (Array.isArray(value) && value.length === 0);
}

/** A deleted condition in a strategic merge patch: conditions are merged by type. */
function deletion({ type }: NodeCondition): object {
  return { $patch: "delete", type };
}

/** A strategic merge patch: the list of addresses is replaced as a whole, and resources that are gone are removed. */
function patchOf(node: Node, wanted: NodeStatus): object {
  const gone = (name: "capacity" | "allocatable") =>
    Object.fromEntries(
      Object.keys(node.status?.[name] ?? {})
        // Resources that others have added to the capacity are removed by them.
        .filter((key) => !(key in (wanted[name] ?? {})) && (isNative(key) || name === "allocatable"))
        .map((key) => [key, null]),
    );
  return {
    ...wanted,
    capacity: { ...gone("capacity"), ...wanted.capacity },
    allocatable: { ...gone("allocatable"), ...wanted.allocatable },
    addresses: [...(wanted.addresses ?? []), { $patch: "replace" }],
  };
}
