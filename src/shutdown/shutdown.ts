import { shutdownRecordFile } from "../host/layout.ts";
import { type Logind, connectLogind } from "../host/systemd/logind.ts";
import { CodedError, abortError } from "../lib/errors.ts";
import type { Runnable } from "../lib/runnables.ts";
import type { EventSink, PodCache, PodStore, WaitForTarget, Eviction } from "../pipeline.ts";
import { nodeReference, podFullName } from "../pod/reference.ts";
import type { Host } from "../seams/host.ts";
import { isActive } from "../state/active.ts";
import type { ValuePair } from "../state/values.ts";
import type { Sends } from "../state/signals.ts";
import { type ShutdownInhibitorDeps, createShutdownInhibitor, raiseInhibitDelay } from "./shutdown-inhibitor.ts";
import {
  type GracePeriod,
  totalGracePeriodMs,
  type ShutdownGroup,
  groupByPriority,
  podGraceSeconds,
} from "./groups.ts";
import { createShutdownRecord, type ShutdownMeasures } from "./shutdown-record.ts";
import type { Logger } from "../lib/log.ts";
import type { DesiredPod } from "../roles.ts";
import { type StopDeps, isFinished, untilStopped, untilWorkers } from "../state/worker-phases.ts";

export interface ShutdownDeps extends EndPodsDeps, ShutdownInhibitorDeps {
  readonly periods: readonly GracePeriod[];
  readonly nodeName: string;
  readonly rootDir: string;
  /** Records the start and end of shutdowns. */
  readonly recordsShutdowns: boolean;
  readonly pods: Pick<PodStore, "list">;
  readonly podCache: Pick<PodCache, "get">;
  /** True while the machine is shutting down. */
  readonly shuttingDown: ValuePair<true>["writer"];
  readonly signals: Sends<"terminatePod" | "nodeChanged">;
  readonly host: Host;
  readonly events: EventSink;
  readonly measures: ShutdownMeasures;
  readonly waitForTarget: WaitForTarget | undefined;
}

/** Delay before logind is watched again, milliseconds. */
const watchRetryDelayMs = 1_000;
/** Timeout for writing the shutdown's record, milliseconds: the machine waits for it. */
const recordTimeoutMs = 5_000;

/** Ends the node's pods in order when their machine shuts down, and delays the shutdown meanwhile. A machine without logind is logged
 *  once, and is not a failure. (kubelet, nodeshutdown_manager_linux.go)
 *  @see https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/#graceful-node-shutdown */
export function createShutdownManager(deps: ShutdownDeps): Runnable {
  const { waitForTarget, clock, log } = deps;
  const watch = createShutdownWatch(deps);
  return {
    name: "shutdown",
    async run(signal) {
      while (!signal.aborted) {
        const lost = waitForTarget && (await waitForTarget(signal).catch(() => undefined));
        const either = lost ? AbortSignal.any([signal, lost]) : signal;
        try {
          if (!either.aborted) await watch.run(either);
        } catch (err) {
          if (!either.aborted && !watch.hasStarted()) {
            log.error({ err }, "Failed to start node shutdown manager");
            return;
          }
          if (!either.aborted) log.error({ err }, "Unable to watch the node for shutdown events");
        }
        await clock.sleep(watchRetryDelayMs, signal).catch(() => undefined);
        if (!signal.aborted) log.info({}, "Restarting watch for node shutdown events");
      }
    },
  };
}

/** Watches the target's logind. Its signal only announces a change: the property read afterwards decides what to do. */
function createShutdownWatch(deps: ShutdownDeps) {
  const { host, rootDir, periods, shuttingDown, recordsShutdowns } = deps;
  const inhibitor = createShutdownInhibitor(deps);
  const record = recordsShutdowns
    ? createShutdownRecord({ ...deps, fs: host.fs, file: shutdownRecordFile(rootDir) })
    : undefined;
  const handleShutdown = createShutdownHandler(deps, record);
  let hasStarted = false;
  /** True while pods are being ended, also if the target was lost meanwhile. */
  let isEndingPods = false;

  /** @returns whether the machine is shutting down. */
  const start = async (logind: Logind, acquire: () => Promise<void>, signal: AbortSignal): Promise<boolean> => {
    await raiseInhibitDelay({ ...deps, fs: host.fs }, logind, totalGracePeriodMs(periods), signal);
    const isShuttingDown = await logind.isShuttingDown(signal);
    // logind refuses inhibitor locks during a shutdown.
    if (!isShuttingDown) await acquire();
    if (!hasStarted) await record?.load(signal);
    hasStarted = true;
    return isShuttingDown;
  };

  return {
    /** True once a watch has been established. */
    hasStarted: () => hasStarted,
    /** @throws if the connection to logind is lost; the signal's reason. */
    async run(signal: AbortSignal) {
      let changed = Promise.withResolvers<void>();
      const logind = await connectLogind(deps, () => changed.resolve(), signal);
      const lockLost = new AbortController();
      const over = AbortSignal.any([signal, logind.lost, lockLost.signal]);
      over.addEventListener("abort", () => changed.resolve(), { once: true });
      const onLost = () => lockLost.abort(new CodedError("unavailable", "systemd-inhibit has ended"));
      const acquire = () => inhibitor.acquire(onLost, signal);
      try {
        let isShuttingDown = await start(logind, acquire, signal);
        for (;;) {
          const isHandled = isShuttingDown === (shuttingDown.get() ?? false) && !isEndingPods;
          isEndingPods = isShuttingDown;
          if (!isHandled && isShuttingDown) await handleShutdown(inhibitor.release, signal);
          else if (!isHandled) await handleCancellation(deps, acquire);
          isEndingPods = false;
          await changed.promise;
          if (over.aborted) throw abortError(over);
          changed = Promise.withResolvers<void>();
          isShuttingDown = await logind.isShuttingDown(signal);
        }
      } finally {
        logind.close();
        if (signal.aborted) await inhibitor.release();
      }
    },
  };
}

/** Reports the node as shutting down, ends its pods, and releases the delay lock. */
function createShutdownHandler(
  deps: ShutdownDeps,
  record: ReturnType<typeof createShutdownRecord> | undefined,
): (release: () => Promise<void>, signal: AbortSignal) => Promise<void> {
  const { pods, podCache, worker, periods, clock, log } = deps;
  return async (release, signal) => {
    reportShutdownState(deps, true, "Shutdown manager detected shutdown event");
    const active = pods
      .list()
      .filter((pod) => isActive(pod, worker.get(pod.metadata.uid), podCache.get(pod.metadata.uid)));
    try {
      await record?.recordStart(clock.now(), clock.within(recordTimeoutMs, signal));
      await endPods(deps, periods, active, signal);
    } finally {
      if (!signal.aborted) await record?.recordEnd(clock.now(), clock.within(recordTimeoutMs, signal));
      await release();
      log.info({}, "Shutdown manager completed processing shutdown event, node will shutdown shortly");
    }
  };
}

/** Reports that the shutdown was cancelled. The pods that have ended stay ended. */
async function handleCancellation(deps: ShutdownDeps, acquire: () => Promise<void>): Promise<void> {
  reportShutdownState(deps, undefined, "Shutdown manager detected shutdown cancellation");
  await acquire();
}

function reportShutdownState(deps: ShutdownDeps, shuttingDown: true | undefined, message: string): void {
  const { signals, events, nodeName, log } = deps;
  log.info({ event: shuttingDown ? "shutdown" : "cancelled" }, "Shutdown manager detected new shutdown event");
  events.event(nodeReference(nodeName), "Normal", "Shutdown", message);
  deps.shuttingDown.set(shuttingDown);
  signals.nodeChanged.send();
}

interface EndPodsDeps extends StopDeps {
  readonly signals: Sends<"terminatePod">;
  readonly log: Logger;
}

const message = "Pod was terminated in response to imminent node shutdown.";
/** The reason in the pods' status and events. */
const podTermination: Eviction = { reason: "Terminated", message, disruption: message };

/** Ends pods group by group: a group starts when the previous group's containers are gone and its volumes unmounted, or when its time
 *  is over. CSI drivers, in the last group, serve the others until then. (kubelet, nodeshutdown_manager.go, killPods) @throws the
 *  signal's reason. */
async function endPods(
  deps: EndPodsDeps,
  periods: readonly GracePeriod[],
  pods: readonly DesiredPod[],
  signal: AbortSignal,
): Promise<void> {
  for (const group of groupByPriority(periods, pods)) if (group.pods.length > 0) await endGroup(deps, group, signal);
}

async function endGroup(deps: EndPodsDeps, group: ShutdownGroup<DesiredPod>, signal: AbortSignal): Promise<void> {
  const { signals, worker, clock, log } = deps;
  const { seconds, priority } = group;
  const uids = group.pods.map(({ metadata }) => metadata.uid);
  const untilDeadline = clock.within(seconds * 1000, signal);
  const finished = untilWorkers(worker, uids, isFinished, untilDeadline);
  // An event reports a pod that takes longer than its own grace period.
  const stopped = group.pods.map((pod) => {
    const graceSeconds = podGraceSeconds(pod, group);
    log.info({ pod: podFullName(pod), gracePeriod: graceSeconds }, "Shutdown manager killing pod with gracePeriod");
    signals.terminatePod.send(pod.metadata.uid, { graceSeconds, eviction: podTermination });
    return untilStopped(deps, pod, graceSeconds, untilDeadline).catch(() => false);
  });
  try {
    await Promise.all([finished, ...stopped]);
    log.info({ gracePeriod: seconds, priority }, "Done waiting for all pods in group to terminate");
  } catch {
    signal.throwIfAborted();
    const remaining = group.pods
      .filter(({ metadata }) => !isFinished(worker.get(metadata.uid)?.phase))
      .map(podFullName);
    log.warn({ gracePeriod: seconds, priority, pods: remaining }, "Shutdown manager pod killing time out");
  }
}
