import { execFile } from "node:child_process";
import { promisify } from "node:util";
import type { Clock } from "../lib/clock.ts";
import { CodedError } from "../lib/errors.ts";
import { goDuration } from "../lib/go-duration.ts";
import type { Logger } from "../lib/log.ts";
import { type Service, onAbort } from "../lib/service-group.ts";
import type { Liveness } from "../node/liveness.ts";
import type { Readiness } from "../node/readiness.ts";

type Environment = Readonly<Record<string, string | undefined>>;

export interface ServiceManagerDeps {
  readonly env: Environment;
  readonly readiness: Pick<Readiness, "unready">;
  readonly liveness: Pick<Liveness, "trouble">;
  readonly clock: Clock;
  readonly log: Logger;
}

/** The least time of a watchdog, milliseconds: it must be longer. */
const leastWatchdogMs = 1_000;
/** Interval of looks whether the process is ready, milliseconds. */
const readyEveryMs = 100;
/** Time for a word to reach systemd, milliseconds. */
const toldWithinMs = 5_000;
/** Pause before a word that did not reach systemd is said once more, milliseconds. */
const againMs = 1_000;

/** Tells systemd that the process is ready, that it stops, and, at half the time of the unit's WatchdogSec, that it gets on; for a unit
 *  with `Type=notify`. Nothing where no service manager wants to hear of it. Node.js has no datagram sockets of Unix: each word is a
 *  command.
 *  @throws CodedError, one sentence in the kubelet's words, for a watchdog that cannot be kept quiet.
 *  @see https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html */
export function tellServiceManager(deps: ServiceManagerDeps): readonly Service[] {
  const { env, readiness, liveness, clock, log } = deps;
  const watchdogMs = watchdogOf(env);
  if (!env["NOTIFY_SOCKET"]) return [];
  const tell = async (state: string, tries = 1): Promise<void> => {
    try {
      await notify(env, state);
    } catch (err) {
      if (tries === 1) return log.error({ err, state }, "systemd could not be told");
      await clock.sleep(againMs);
      await tell(state, tries - 1);
    }
  };
  const ready: Service = {
    name: "service manager",
    async run(signal) {
      const rest = () => clock.sleep(readyEveryMs, signal).catch(() => undefined);
      while (!signal.aborted && readiness.unready() !== undefined) await rest();
      if (!signal.aborted) await tell("READY=1");
      await onAbort(signal);
      await tell("STOPPING=1");
    },
  };
  const watchdog: Service = {
    name: "watchdog",
    async run(signal) {
      log.info({ interval: goDuration(watchdogMs / 2) }, "Starting systemd watchdog with interval");
      while (!signal.aborted) {
        const trouble = liveness.trouble();
        if (trouble === undefined) await tell("WATCHDOG=1", 2);
        else log.error({ trouble }, "Do not notify watchdog this iteration as the kubelet is reportedly not healthy");
        await clock.sleep(watchdogMs / 2, signal).catch(() => undefined);
      }
    },
  };
  return watchdogMs > 0 ? [ready, watchdog] : [ready];
}

/** Time after which systemd takes the process for hung, milliseconds; 0 where it does not watch it.
 *  (kubelet, watchdog_linux.go; sd_watchdog_enabled) @throws CodedError invalid_argument, in the kubelet's words. */
export function watchdogOf(env: Environment): number {
  const text = env["WATCHDOG_USEC"];
  if (!text) return 0;
  const refused = (why: string) =>
    new CodedError("invalid_argument", `create health checker: configure watchdog${why}`);
  if (!/^[+-]?\d+$/.test(text)) throw refused(`: error converting WATCHDOG_USEC: ${JSON.stringify(text)} is no number`);
  const ms = Number(text) / 1000;
  if (ms <= 0) throw refused(": error WATCHDOG_USEC must be a positive number");
  const pid = env["WATCHDOG_PID"];
  if (pid && !/^\d+$/.test(pid)) throw refused(`: error converting WATCHDOG_PID: ${JSON.stringify(pid)} is no number`);
  if (pid && Number(pid) !== process.pid) return 0;
  if (ms <= leastWatchdogMs) throw refused(` timeout too small: ${goDuration(ms)}`);
  return ms;
}

/** Says a word as this process does: systemd takes one of a command for the service's own by the number, or with NotifyAccess=all.
 *  @throws when there is no such program, or it could not reach systemd. */
async function notify(env: Environment, state: string): Promise<void> {
  const options = { env: { ...env }, timeout: toldWithinMs };
  await promisify(execFile)("systemd-notify", [`--pid=${process.pid}`, state], options);
}
