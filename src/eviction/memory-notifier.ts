import { EventEmitter, once } from "node:events";
import { readLines } from "../host/command-lines.ts";
import { hasCode, messageOf } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { programText } from "../lib/program-text.ts";
import { throttle } from "../lib/throttle.ts";
import { runPeriodically } from "../lib/periodic.ts";
import type { WaitForTarget } from "../pipeline.ts";
import type { Host, HostProcess } from "../seams/host.ts";
import type { MemoryBound } from "./memory-bounds.ts";
import { interpreted } from "../seams/command.ts";

export interface MemoryNotifierDeps extends ClockAndLog {
  readonly host: Pick<Host, "spawn">;
  readonly waitForTarget: WaitForTarget | undefined;
}

/** Delay before the listener is restarted after its end, milliseconds. */
const restartDelayMs = 10_000;
/** Minimum interval between two reported crossings, milliseconds: each triggers the eviction manager. */
const minCrossingIntervalMs = 1_000;
/** Maximum number and length (characters) of logged reasons, which come from the target. */
const [maxReasons, maxReasonLength] = [16, 512];

/** Subscribes to the target kernel's memory cgroup notifications (KubeletConfiguration.kernelMemcgNotification). If perl or kernel
 *  support is missing, this is logged once, and memory is observed at the usual interval only.
 *  @see
 *  https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#kubelet-may-not-observe-memory-pressure-right-away */
export function createMemoryNotifier(deps: MemoryNotifierDeps) {
  const { host, clock, log } = deps;
  const logged = new Set<string>();
  const logFailure = (reason: string) => {
    const why = reason.slice(0, maxReasonLength);
    if (logged.has(why) || logged.size >= maxReasons) return;
    logged.add(why);
    log.warn({ why }, "eviction manager: memory cgroup notifications unavailable");
  };
  let bounds: readonly MemoryBound[] = [];
  let listener: HostProcess | undefined;
  const crossings = new EventEmitter();
  let hasCrossed = false;

  const wake = throttle(
    () => {
      hasCrossed = true;
      crossings.emit("crossed");
    },
    minCrossingIntervalMs,
    clock,
  );
  const onLine = (line: string) => {
    const [, why] = /^failed (.*)$/.exec(line) ?? [];
    if (why !== undefined) return logFailure(why);
    const [, name] = /^crossed ((?:hard|soft) (?:allocatable )?memory)$/.exec(line) ?? [];
    if (name === undefined) return;
    log.info({}, `eviction manager: ${name} eviction threshold crossed`);
    wake();
  };
  const sendBounds = (now: readonly MemoryBound[], former: readonly MemoryBound[] = []) => {
    const over = former.filter(({ name }) => !now.some((bound) => bound.name === name));
    const lines = [
      ...over.map(({ directory, name }) => `- ${directory} ${name}\n`),
      ...now.map(({ bytes, directory, name }) => `${bytes} ${directory} ${name}\n`),
    ];
    listener?.stdin.write(lines.join(""));
  };
  const listen = async (signal: AbortSignal) => {
    try {
      listener = await host.spawn(interpreted("perl", programText("src/eviction/memory-thresholds.pl")), signal);
      listener.stdin.on("error", () => {});
      sendBounds(bounds);
      const why = await readLines(listener, onLine, signal);
      if (!signal.aborted && why !== "") logFailure(why);
    } catch (error) {
      if (signal.aborted || hasCode(error, "unavailable")) return;
      logFailure(messageOf(error));
    } finally {
      listener = undefined;
    }
  };
  return {
    ...runPeriodically({ ...deps, name: "memory-notifier", intervalMs: restartDelayMs }, listen),
    /** Sets the bounds whose crossing the kernel reports, replacing the previous ones. */
    setBounds(now: readonly MemoryBound[]) {
      sendBounds(now, bounds);
      bounds = now;
    },
    /** Resolves when a bound is crossed; immediately if one was crossed since the last call. Also resolves when the signal aborts. */
    async crossed(signal: AbortSignal) {
      if (!hasCrossed) await once(crossings, "crossed", { signal }).catch(() => undefined);
      if (!signal.aborted) hasCrossed = false;
    },
  };
}
