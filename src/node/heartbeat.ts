import type { ApiClient } from "../api/client.ts";
import type { Clock } from "../lib/clock.ts";
import { hasCode } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import { rfc3339 } from "../lib/rfc3339.ts";
import type { Service } from "../lib/service-group.ts";
import type { Node, NodeStatus } from "../objects.ts";
import type { EventSink, NodeSource } from "../pipeline.ts";
import { nodeReference } from "../pod/reference.ts";
import { type Verdict, flips, withTimes } from "./conditions.ts";

/** A node's status as it should be, but for the conditions' times. */
export interface WantedStatus {
  readonly status: NodeStatus;
  readonly verdicts: readonly Verdict[];
}

export interface HeartbeatDeps {
  readonly client: ApiClient;
  readonly nodes: NodeSource;
  readonly nodeName: string;
  /** Reads the target and says what the status should be. */
  readonly wanted: (signal: AbortSignal) => Promise<WantedStatus>;
  readonly register: (signal: AbortSignal) => Promise<void>;
  readonly registerNode: boolean;
  /** KubeletConfiguration.nodeStatusUpdateFrequency and nodeStatusReportFrequency, milliseconds. */
  readonly updateMs: number;
  readonly reportMs: number;
  readonly events: EventSink;
  readonly clock: Clock;
  readonly log: Logger;
}

export interface Heartbeat extends Service {
  /** Something that the status shows has changed: look now. */
  hurry(): void;
}

/** At the start, and after a change, the status is looked at this often until the node is ready. */
const fastMs = 100;
const fastForMs = 120_000;

/** Keeps the Node object there and its status true: looked at every ten seconds, written when it changed or five minutes have
 *  passed. @see https://kubernetes.io/docs/reference/node/node-status/#heartbeats */
export function createHeartbeat(deps: HeartbeatDeps): Heartbeat {
  const { client, nodes, nodeName, clock, events, log } = deps;
  let reportedAt = Number.NEGATIVE_INFINITY;
  let hurried = Promise.withResolvers<void>();
  let missing = 0;

  const beat = async (signal: AbortSignal): Promise<boolean> => {
    const node = nodes.node();
    if (!node) {
      if (deps.registerNode) await deps.register(signal);
      return false;
    }
    const { status, verdicts } = await deps.wanted(signal);
    const before = node.status?.conditions ?? [];
    const conditions = withTimes(verdicts, before, rfc3339(clock.now()));
    const ready = verdicts.some(({ type, status: value }) => type === "Ready" && value === "True");
    const changed = differs(node, status, verdicts);
    if (!changed && clock.monotonic() - reportedAt < deps.reportMs) return ready;
    const patch = { status: { ...patchOf(node, status), conditions } };
    await client.patch(`/api/v1/nodes/${nodeName}/status`, { type: "strategic", body: patch }, { signal });
    reportedAt = clock.monotonic();
    for (const reason of flips(before, conditions)) events.event(nodeReference(nodeName), "Normal", reason, `Node ${nodeName} status is now: ${reason}`);
    announceBoot(node, status);
    return ready;
  };

  const announceBoot = (node: Node, status: NodeStatus) => {
    const before = node.status?.nodeInfo?.bootID;
    const now = status.nodeInfo?.bootID;
    if (before && now && before !== now) events.event(nodeReference(nodeName), "Warning", "Rebooted", `Node ${nodeName} has been rebooted, boot id: ${now}`);
  };

  return {
    name: "node-status",
    hurry: () => hurried.resolve(),
    async run(signal) {
      let fastUntil = clock.monotonic() + fastForMs;
      while (!signal.aborted) {
        let ready = false;
        hurried = Promise.withResolvers<void>();
        try {
          ready = await beat(signal);
          missing = 0;
        } catch (error) {
          if (signal.aborted) return;
          if (missing++ === 0 && !hasCode(error, "not_found")) log.warn({ err: error }, "node status was not written, will retry");
        }
        if (ready) fastUntil = 0;
        const fast = clock.monotonic() < fastUntil && missing === 0;
        const wait = new AbortController();
        const pause = clock.sleep(fast ? fastMs : deps.updateMs * clock.jitter(1, 1.04), AbortSignal.any([signal, wait.signal])).catch(() => undefined);
        await Promise.race([pause, hurried.promise.then(() => clock.sleep(fastMs, signal).catch(() => undefined))]);
        wait.abort();
      }
    },
  };
}

/** True when the API server shows another status, heartbeat times aside. */
function differs(node: Node, wanted: NodeStatus, verdicts: readonly Verdict[]): boolean {
  const shown = node.status ?? {};
  const conditions = verdicts.map(({ type, status, reason, message }) => {
    const old = shown.conditions?.find((each) => each.type === type);
    return old?.status === status && old.reason === reason && old.message === message;
  });
  if (conditions.includes(false)) return true;
  return Object.entries(wanted).some(([field, value]) => !equal(value, shown[field as keyof NodeStatus]));
}

function equal(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  if (isEmpty(a) && isEmpty(b)) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  const keys = new Set([...Object.keys(a), ...Object.keys(b)]);
  return [...keys].every((key) => equal((a as Record<string, unknown>)[key], (b as Record<string, unknown>)[key]));
}

/** The API server leaves out what is empty. */
function isEmpty(value: unknown): boolean {
  return value === undefined || value === "" || value === false || (Array.isArray(value) && value.length === 0);
}

/** A strategic merge patch: the list of addresses is replaced as a whole, and resources that are gone are removed. */
function patchOf(node: Node, wanted: NodeStatus): object {
  const gone = (name: "capacity" | "allocatable") =>
    Object.fromEntries(Object.keys(node.status?.[name] ?? {}).filter((key) => !(key in (wanted[name] ?? {})) && !key.includes("/")).map((key) => [key, null]));
  return {
    ...wanted,
    capacity: { ...gone("capacity"), ...wanted.capacity },
    allocatable: { ...gone("allocatable"), ...wanted.allocatable },
    addresses: [...(wanted.addresses ?? []), { $patch: "replace" }],
  };
}
