import { shutdownRecordFile } from "../host/shutdown-file.ts";
import { type Logind, connectLogind } from "../host/systemd/logind.ts";
import { CodedError, abortError } from "../lib/errors.ts";
import type { Service } from "../lib/service-group.ts";
import type { ShutdownMeasures } from "../measures.ts";
import type { EventSink, PodCache, PodStore, WaitForTarget } from "../pipeline.ts";
import { nodeReference } from "../pod/reference.ts";
import type { Host } from "../seams/host.ts";
import { isActive } from "../state/active.ts";
import type { ValuePair } from "../state/values.ts";
import type { Sends } from "../state/signals.ts";
import { type DelayLockDeps, createDelayLock } from "./delay-lock.ts";
import { type EndPodsDeps, endPods } from "./end-pods.ts";
import { type GracePeriod, periodRequestedMs } from "./groups.ts";
import { raiseInhibitDelay } from "./inhibit-delay.ts";
import { createShutdownRecord } from "./shutdown-record.ts";

export interface ShutdownDeps extends EndPodsDeps, DelayLockDeps {
  readonly periods: readonly GracePeriod[];
  readonly nodeName: string;
  readonly rootDir: string;
  /** Records the start and end of shutdowns. */
  readonly keepsRecord: boolean;
  readonly pods: Pick<PodStore, "list">;
  readonly cache: Pick<PodCache, "get">;
  /** True while the machine is shutting down. */
  readonly shuttingDown: ValuePair<true>["writer"];
  readonly signals: Sends<"end" | "nodeChanged">;
  readonly host: Host;
  readonly events: EventSink;
  readonly measures: ShutdownMeasures;
  readonly waitForTarget?: WaitForTarget;
}

/** Delay before logind is watched again, milliseconds. */
const againMs = 1_000;
/** Timeout for writing the shutdown's record, milliseconds: the machine waits for it. */
const recordWithinMs = 5_000;

/** Ends the node's pods in order when their machine shuts down, and delays the shutdown meanwhile. A machine without logind is logged once
 *  and is no failure. (kubelet, nodeshutdown_manager_linux.go)
 *  @see https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/#graceful-node-shutdown */
export function createShutdownManager(deps: ShutdownDeps): Service {
  const { waitForTarget, clock, log } = deps;
  const watch = createWatch(deps);
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
        await clock.sleep(againMs, signal).catch(() => undefined);
        if (!signal.aborted) log.info({}, "Restarting watch for node shutdown events");
      }
    },
  };
}

interface Watch {
  /** True once a watch has been established. */
  hasStarted(): boolean;
  /** @throws when the connection to logind is lost; what the signal aborted with. */
  run(signal: AbortSignal): Promise<void>;
}

/** Watches the target's logind. Its signal only announces a change: the property read afterwards decides what to do. */
function createWatch(deps: ShutdownDeps): Watch {
  const { host, rootDir, periods, shuttingDown, keepsRecord } = deps;
  const lock = createDelayLock(deps);
  const record = keepsRecord
    ? createShutdownRecord({ ...deps, fs: host.fs, file: shutdownRecordFile(rootDir) })
    : undefined;
  const shutDown = createShutDown(deps, record);
  let hasStarted = false;
  /** True while pods are being ended, also if the target was lost meanwhile. */
  let isAtWork = false;

  /** @returns whether the machine is shutting down. */
  const begin = async (logind: Logind, take: () => Promise<void>, signal: AbortSignal): Promise<boolean> => {
    await raiseInhibitDelay({ ...deps, fs: host.fs }, logind, periodRequestedMs(periods), signal);
    const isUnderWay = await logind.isShuttingDown(signal);
    // logind refuses inhibitor locks during a shutdown.
    if (!isUnderWay) await take();
    if (!hasStarted) await record?.load(signal);
    hasStarted = true;
    return isUnderWay;
  };

  return {
    hasStarted: () => hasStarted,
    async run(signal) {
      let news = Promise.withResolvers<void>();
      const logind = await connectLogind(deps, () => news.resolve(), signal);
      const lockLost = new AbortController();
      const over = AbortSignal.any([signal, logind.lost, lockLost.signal]);
      over.addEventListener("abort", () => news.resolve(), { once: true });
      const onLost = () => lockLost.abort(new CodedError("unavailable", "systemd-inhibit has ended"));
      const take = () => lock.take(onLost, signal);
      try {
        let isUnderWay = await begin(logind, take, signal);
        for (;;) {
          const isKnown = isUnderWay === (shuttingDown.get() ?? false) && !isAtWork;
          isAtWork = isUnderWay;
          if (!isKnown && isUnderWay) await shutDown(lock.release, signal);
          else if (!isKnown) await callOff(deps, take);
          isAtWork = false;
          await news.promise;
          if (over.aborted) throw abortError(over);
          news = Promise.withResolvers<void>();
          isUnderWay = await logind.isShuttingDown(signal);
        }
      } finally {
        logind.close();
        if (signal.aborted) await lock.release();
      }
    },
  };
}

/** Reports the node as shutting down, ends its pods, and releases the delay lock. */
function createShutDown(
  deps: ShutdownDeps,
  record: ReturnType<typeof createShutdownRecord> | undefined,
): (release: () => Promise<void>, signal: AbortSignal) => Promise<void> {
  const { pods, cache, worker, periods, clock, log } = deps;
  return async (release, signal) => {
    show(deps, true, "Shutdown manager detected shutdown event");
    const active = pods
      .list()
      .filter((pod) => isActive(pod, worker.get(pod.metadata.uid), cache.get(pod.metadata.uid)));
    try {
      await record?.began(clock.now(), clock.within(recordWithinMs, signal));
      await endPods(deps, periods, active, signal);
    } finally {
      if (!signal.aborted) await record?.ended(clock.now(), clock.within(recordWithinMs, signal));
      await release();
      log.info({}, "Shutdown manager completed processing shutdown event, node will shutdown shortly");
    }
  };
}

/** Reports that the shutdown was cancelled. The pods have ended. */
async function callOff(deps: ShutdownDeps, take: () => Promise<void>): Promise<void> {
  show(deps, undefined, "Shutdown manager detected shutdown cancellation");
  await take();
}

function show({ shuttingDown, signals, events, nodeName, log }: ShutdownDeps, is: true | undefined, what: string): void {
  log.info({ event: is ? "shutdown" : "cancelled" }, "Shutdown manager detected new shutdown event");
  events.event(nodeReference(nodeName), "Normal", "Shutdown", what);
  shuttingDown.set(is);
  signals.nodeChanged.send();
}
