import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { CodedError } from "../lib/errors.ts";
import { goDuration } from "../lib/go-duration.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { type Runnable, onAbort } from "../lib/runnables.ts";
import type { Liveness } from "../node/liveness.ts";
import type { Readiness } from "../node/readiness.ts";

type Environment = Readonly<Record<string, string | undefined>>;

export interface ServiceManagerDeps extends ClockAndLog {
  readonly env: Environment;
  readonly readiness: Pick<Readiness, "unready">;
  readonly liveness: Pick<Liveness, "trouble">;
}

/** Watchdog timeouts must be longer than this, milliseconds. */
const minWatchdogMs = 1_000;
/** Interval of readiness checks, milliseconds. */
const readyIntervalMs = 100;
/** Timeout of a notification, milliseconds. */
const notifyTimeoutMs = 5_000;
/** Delay before the retry of a failed notification, milliseconds. */
const retryDelayMs = 1_000;

/** Creates the sd_notify services: READY, STOPPING, and WATCHDOG at half of the unit's WatchdogSec; for units with `Type=notify`.
 *  Without NOTIFY_SOCKET there are none. Node.js has no Unix datagram sockets: each notification runs `systemd-notify`.
 *  @throws CodedError, one sentence with the kubelet's text, for an unusable watchdog timeout.
 *  @see https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html */
export function notifyServiceManager(deps: ServiceManagerDeps): readonly Runnable[] {
  const { env, readiness, liveness, clock, log } = deps;
  const watchdogMs = watchdogTimeout(env);
  if (!env["NOTIFY_SOCKET"]) return [];
  const send = async (state: string, tries = 1): Promise<void> => {
    try {
      await notify(env, state);
    } catch (err) {
      if (tries === 1) return log.error({ err, state }, "cannot notify systemd");
      await clock.sleep(retryDelayMs);
      await send(state, tries - 1);
    }
  };
  const ready: Runnable = {
    name: "service manager",
    async run(signal) {
      const pause = () => clock.sleep(readyIntervalMs, signal).catch(() => undefined);
      while (!signal.aborted && readiness.unready() !== undefined) await pause();
      if (!signal.aborted) await send("READY=1");
      await onAbort(signal);
      await send("STOPPING=1");
    },
  };
  const watchdog: Runnable = {
    name: "watchdog",
    async run(signal) {
      log.info({ interval: goDuration(watchdogMs / 2) }, "Starting systemd watchdog with interval");
      while (!signal.aborted) {
        const trouble = liveness.trouble();
        if (trouble === undefined) await send("WATCHDOG=1", 2);
        else log.error({ trouble }, "Do not notify watchdog this iteration as the kubelet is reportedly not healthy");
        await clock.sleep(watchdogMs / 2, signal).catch(() => undefined);
      }
    },
  };
  return watchdogMs > 0 ? [ready, watchdog] : [ready];
}

/** Returns systemd's watchdog timeout, milliseconds; 0 without a watchdog. (kubelet, watchdog_linux.go; sd_watchdog_enabled)
 *  @throws CodedError invalid_argument, with the kubelet's text. */
export function watchdogTimeout(env: Environment): number {
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
  if (ms <= minWatchdogMs) throw refused(` timeout too small: ${goDuration(ms)}`);
  return ms;
}

/** Sends a notification on behalf of this process: systemd accepts it because of the PID, or with NotifyAccess=all.
 *  @throws if systemd-notify is not installed, or cannot reach systemd. */
async function notify(env: Environment, state: string): Promise<void> {
  const options = { env: { ...env }, timeout: notifyTimeoutMs };
  await promisify(execFile)("systemd-notify", [`--pid=${process.pid}`, state], options);
}
