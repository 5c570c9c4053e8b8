import { applyObject } from "../api/apply.ts";
import type { ApiClient } from "../api/client.ts";
import { hasCode } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { createFailureLog } from "../lib/retry.ts";
import { rfc3339 } from "../lib/rfc3339.ts";
import { createTrigger } from "../lib/trigger.ts";
import type { Node, ObjectMeta } from "../objects.ts";
import type { ReportedNode } from "../report/reported-node.ts";
import { type Cause, comparableStatus, conditionsOf } from "./conditions.ts";
import {
  type FleetCondition,
  type GraftedNode,
  graftedNodeKind,
  graftedNodePath,
  type GraftedNodeStatus,
} from "./grafted-node.ts";

export interface StatusWriterDeps extends ClockAndLog {
  readonly client: Pick<ApiClient, "patch">;
  readonly report: ReportedNode;
}

/** The inputs of a status, in addition to the reports of the node. */
export interface StatusInput {
  readonly object: GraftedNode;
  readonly refused: Cause | undefined;
  readonly stopped: Cause | undefined;
  /** True once the machine of an inactive object has left the cluster. */
  readonly hasLeft: boolean;
  /** Digest of its pool's template, as the node runs with it; undefined if it does not run. */
  readonly template: string | undefined;
  /** Epoch in which this replica serves the object; undefined for an object that is not shared. */
  readonly epoch: number | undefined;
}

/** Delay before a failed write is repeated, and minimum interval between two writes, milliseconds. */
const retryMs = 10_000;
const minIntervalMs = 500;
/** Minimum interval between two writes while a node starts, milliseconds. The status of a node that is Ready sooner is written once. */
const minStartIntervalMs = 2_000;
/** Minimum interval between two writes if nothing but the number of pods has changed, milliseconds. */
const minPodsIntervalMs = 10_000;

/** Creates the writer of an object's status. It writes when the status has changed. */
export function createStatusWriter(deps: StatusWriterDeps, input: () => StatusInput) {
  const { client, report, clock, log } = deps;
  const changed = createTrigger();
  const failures = createFailureLog(log, "cannot write the status of GraftedNode; retrying");
  const write = async (signal: AbortSignal) => {
    const startedAt = clock.monotonic();
    let written: { readonly text: string; readonly pods: number | undefined; readonly at: number } | undefined;
    while (!signal.aborted) {
      await changed.fired(signal);
      if (signal.aborted) return;
      const { object } = input();
      const status = statusOf({ ...input(), report, now: clock.now() });
      const { pods, ...rest } = status;
      const text = comparableStatus(rest);
      const now = clock.monotonic();
      const isSame = written?.text === text;
      if (isSame && written?.pods === pods) continue;
      const intervalMs = isSame ? minPodsIntervalMs : isBecomingReady(status) ? minStartIntervalMs : minIntervalMs;
      const waitMs = (written?.at ?? startedAt) + intervalMs - now;
      if (waitMs > 0) {
        await clock.sleep(Math.min(waitMs, minIntervalMs), signal).catch(() => undefined);
        if (waitMs > minIntervalMs) await changed.firedWithin(clock, waitMs - minIntervalMs, signal);
        changed.fire();
        continue;
      }
      try {
        await applyStatus(client, object, status, signal);
        written = { text, pods, at: now };
        failures.succeeded();
      } catch (error) {
        if (signal.aborted || hasCode(error, "not_found")) return;
        failures.failed(error);
        await clock.sleep(retryMs, signal).catch(() => undefined);
        changed.fire();
      }
    }
  };
  return {
    /** To be called when the status may have changed. */
    changed: changed.fire,
    /** The conditions now, even if they have not been written yet. */
    conditions: (): readonly FleetCondition[] => statusOf({ ...input(), report, now: clock.now() }).conditions ?? [],
    /** Writes the status while `work` is running, or until the signal aborts. */
    async during(work: () => Promise<void>, signal: AbortSignal): Promise<void> {
      const over = new AbortController();
      const ended = write(AbortSignal.any([signal, over.signal]));
      try {
        await work();
      } finally {
        over.abort();
        await ended;
      }
    },
  };
}

/** True for a node that is not Ready, although no step on the way there has failed. */
function isBecomingReady({ conditions = [] }: GraftedNodeStatus): boolean {
  return conditions.every(({ type, status }) => status !== (type === "Ready" ? "True" : "False"));
}

/** Computes the status of an object from the reports of its node. @param now milliseconds since the epoch. */
export function statusOf({
  object,
  refused,
  stopped,
  hasLeft,
  template,
  epoch,
  report,
  now,
}: Omit<StatusInput, "object"> & {
  readonly object: Pick<GraftedNode, "spec" | "status"> & { readonly metadata: Pick<ObjectMeta, "generation"> };
  readonly report: ReportedNode;
  readonly now: number;
}): GraftedNodeStatus {
  const node = report.introspection()?.node();
  const staticIn = object.spec.static?.release;
  const state = { staticIn, refused, stopped, progress: report.progress(), link: report.link(), node };
  const { generation } = object.metadata;
  return {
    ...(generation !== undefined && { observedGeneration: generation }),
    conditions: conditionsOf(state, object.status?.conditions ?? [], { generation, now: rfc3339(now) }),
    ...(!hasLeft && { ...endpointOf(node, object), ...machineOf(node, object), ...podsOf(report) }),
    ...(template !== undefined && { template }),
    ...(epoch !== undefined && { observedEpoch: epoch }),
  };
}

async function applyStatus(
  client: StatusWriterDeps["client"],
  { metadata }: GraftedNode,
  status: object,
  signal: AbortSignal,
): Promise<void> {
  const path = `${graftedNodePath(metadata.namespace, metadata.name)}/status`;
  await applyObject(client, path, { ...graftedNodeKind(metadata.name), status }, signal);
}

function podsOf(report: ReportedNode): Pick<GraftedNodeStatus, "pods"> {
  const work = report.introspection();
  return work ? { pods: work.podCount() } : {};
}

function endpointOf(
  node: Node | undefined,
  { status }: Pick<GraftedNode, "status">,
): Pick<GraftedNodeStatus, "endpoint"> {
  const address = node?.status?.addresses?.find(({ type }) => type === "InternalIP")?.address;
  const port = node?.status?.daemonEndpoints?.kubeletEndpoint?.Port;
  if (address === undefined || port === undefined) return status?.endpoint ? { endpoint: status.endpoint } : {};
  return { endpoint: { address, port } };
}

function machineOf(
  node: Node | undefined,
  { status }: Pick<GraftedNode, "status">,
): Pick<GraftedNodeStatus, "machine"> {
  const info = node?.status?.nodeInfo;
  if (!info?.machineID) return status?.machine ? { machine: status.machine } : {};
  const {
    machineID,
    bootID,
    architecture,
    operatingSystem,
    kernelVersion: kernel,
    containerRuntimeVersion: runtime,
  } = info;
  return { machine: { machineID, bootID, architecture, operatingSystem, kernel, runtime } };
}
