import type { ClockAndLog } from "../lib/log.ts";
import { runPeriodically } from "../lib/periodic.ts";
import type { Runnable } from "../lib/runnables.ts";
import type { Host } from "../seams/host.ts";
import { describeFirewall } from "./firewall-remedy.ts";
import { type ProbeDestinations, probeFirewall } from "./firewall-probe.ts";

export interface FirewallWatchDeps extends ClockAndLog {
  readonly host: Pick<Host, "run" | "fs">;
  readonly rootDir: string;
  /** Address of a pod to connect from; undefined without one. */
  readonly pod: () => string | undefined;
  readonly destinations: () => ProbeDestinations | undefined;
  /** Receives what blocks the tunnel, as a sentence for users; undefined if nothing does. */
  readonly onResult: (obstacle: string | undefined) => void;
}

/** Watches for a firewall between a target's pods and the tunnel. */
export interface FirewallWatch extends Runnable {
  /** Probes now if there was no pod to probe from so far. */
  podsChanged(): void;
  /** Probes now: the tunnel's rules are new, which other changes of the firewall may be the reason for. */
  rulesChanged(): void;
}

/** Interval between probes by the last result, milliseconds. Without pods, the next pod ends the interval. */
const intervalsMs = { noPods: 300_000, open: 300_000, unknown: 60_000, blocked: 5_000 };

/** Delay before a first failure is confirmed: a firewall that loads its rules may reject for a moment, milliseconds. */
const confirmDelayMs = 1_000;

/** Probes the firewall when the first pod is there, when the tunnel's rules are new, and periodically. A probe that cannot tell keeps the
 *  previous obstacle; without pods there is none. */
export function createFirewallWatch(deps: FirewallWatchDeps): FirewallWatch {
  const { host, rootDir, clock, log, onResult } = deps;
  let last: keyof typeof intervalsMs = "noPods";
  let isDue = false;
  let due = Promise.withResolvers<void>();
  const wake = () => {
    isDue = true;
    due.resolve();
    due = Promise.withResolvers();
  };
  const probe = async (signal: AbortSignal): Promise<keyof typeof intervalsMs> => {
    const [pod, to] = [deps.pod(), deps.destinations()];
    if (pod === undefined || to === undefined) {
      onResult(undefined);
      return "noPods";
    }
    let blocked = await probeFirewall(host, rootDir, pod, to, signal);
    if (blocked && blocked.length > 0 && last !== "blocked") {
      await clock.sleep(confirmDelayMs, signal);
      blocked = await probeFirewall(host, rootDir, pod, to, signal);
    }
    if (!blocked) return last === "blocked" ? "blocked" : "unknown";
    onResult(blocked.length > 0 ? await describeFirewall(host, pod, blocked, signal) : undefined);
    return blocked.length > 0 ? "blocked" : "open";
  };
  const work = async (signal: AbortSignal) => {
    isDue = false;
    try {
      last = await probe(signal);
    } catch (err) {
      if (!signal.aborted) log.debug({ err }, "cannot probe the target's firewall; retrying");
    }
  };
  const changed = () => (isDue ? Promise.resolve() : due.promise);
  return {
    ...runPeriodically({ name: "firewall probe", intervalMs: () => intervalsMs[last], changed, clock, log }, work),
    podsChanged: () => (last === "noPods" ? wake() : undefined),
    rulesChanged: wake,
  };
}
