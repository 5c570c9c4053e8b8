import type { ApiClient } from "../api/client.ts";
import type { Clock } from "../lib/clock.ts";
import { codeOf, hasCode, messageOf, ignoreNotFound } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { pause } from "../lib/pause.ts";
import { rfc3339 } from "../lib/rfc3339.ts";
import type { Node, NodeCondition } from "../objects.ts";
import type { Host } from "../seams/host.ts";
import type { LinkTrouble, TargetLink } from "../seams/provider.ts";
import { unreachableConditions, readyCondition, shuttingDown, withTimes } from "./conditions.ts";
import { type NodeIdentity, nodeOf } from "./node-object.ts";

export interface FailureReporterDeps extends ClockAndLog {
  readonly client: ApiClient;
  readonly identity: NodeIdentity;
  readonly registerNode: boolean;
  /** Asks whether this process is still told to serve the node; absent if no other process may be. */
  readonly isStillOwner?: ((signal: AbortSignal) => Promise<boolean>) | undefined;
}

/** Reports why a node cannot start. */
export type FailureReporter = ReturnType<typeof createFailureReporter>;

/** Interval of repeated reports: the cluster considers a node dead after 50 s (node-monitor-grace-period). */
const repeatIntervalMs = 15_000;

export function createFailureReporter(deps: FailureReporterDeps) {
  const { clock, log, isStillOwner } = deps;
  let lastReport = "";
  let reportedAt = Number.NEGATIVE_INFINITY;
  return {
    /** Writes the failure as the Node's Ready condition; a missing Node is created, without capacity and unready. An unchanged report is
     *  repeated only to keep the node alive. A former owner of the node writes nothing. */
    async report(trouble: LinkTrouble, signal: AbortSignal) {
      const now = `${trouble.reason} ${trouble.message}`;
      if (now === lastReport && clock.monotonic() - reportedAt < repeatIntervalMs) return;
      try {
        if ((await isStillOwner?.(signal)) === false) return;
        await write(deps, trouble, signal);
        lastReport = now;
        reportedAt = clock.monotonic();
      } catch (error) {
        if (!signal.aborted) log.warn({ err: error, code: codeOf(error) }, "cannot update node status; retrying");
      }
    },
  };
}

export interface UnreachableDeps {
  readonly host: Pick<Host, "fs">;
  readonly link: TargetLink;
  readonly reporter: FailureReporter;
  readonly clock: Clock;
}

/** Interval of checks of an unreachable target, in addition to those on changes of the link, milliseconds. */
const checkIntervalMs = 5_000;
/** Number of failed checks over an apparently working link before it is reported. */
const maxUnreportedFailures = 3;

/** Waits at a node's start until the target can be reached; meanwhile its Node reports the failure. */
export async function waitUntilReachable(
  { host, link, reporter, clock }: UnreachableDeps,
  signal: AbortSignal,
): Promise<void> {
  for (let failures = 1; !signal.aborted; failures++) {
    const changed = Promise.withResolvers<void>();
    const stop = link.onChange(() => changed.resolve());
    try {
      await host.fs.stat("/", signal);
      return;
    } catch (error) {
      const certain = !hasCode(error, "unavailable") || failures >= maxUnreportedFailures;
      const trouble = link.trouble() ?? (certain ? unreadable(error) : undefined);
      if (trouble && !signal.aborted) await reporter.report(trouble, signal);
      await pause(clock, checkIntervalMs, changed.promise, signal);
    } finally {
      stop();
    }
  }
}

function unreadable(error: unknown): LinkTrouble {
  return { reason: "TargetUnreadable", message: `the target's files cannot be read: ${messageOf(error)}` };
}

/** Delay before the next attempt to start a node on a target, milliseconds, before jitter; a change of the link ends it early. */
const startRetryDelayMs = 10_000;

/** Waits until the next attempt. */
export async function waitForNextStart(
  { link, clock }: Pick<UnreachableDeps, "link" | "clock">,
  signal: AbortSignal,
): Promise<void> {
  const changed = Promise.withResolvers<void>();
  const stop = link.onChange(() => changed.resolve());
  await pause(clock, startRetryDelayMs * clock.jitter(0.8, 1.2), changed.promise, signal);
  stop();
}

async function write(deps: FailureReporterDeps, trouble: LinkTrouble, signal: AbortSignal): Promise<void> {
  const { client, clock, identity } = deps;
  const path = `/api/v1/nodes/${identity.nodeName}`;
  const node = await ignoreNotFound(client.get<Node>(path, { signal }));
  const before = node?.status?.conditions ?? [];
  const verdicts =
    trouble.reason === "LinkDown" && wasShutDown(before)
      ? [readyCondition([shuttingDown])]
      : unreachableConditions(trouble);
  const conditions = withTimes(verdicts, before, rfc3339(clock.now()));
  if (node) await client.patch(`${path}/status`, { type: "strategic", body: { status: { conditions } } }, { signal });
  else if (deps.registerNode) {
    const unknown = nodeOf(identity, { "kubernetes.io/hostname": identity.nodeName }, { conditions });
    await client.create("/api/v1/nodes", unknown, { signal });
  }
}

/** True if the target last reported that it is shutting down, which explains why it is unreachable. */
function wasShutDown(conditions: readonly NodeCondition[]): boolean {
  return conditions.some(
    ({ type, status, message }) => type === "Ready" && status !== "True" && message === shuttingDown,
  );
}
