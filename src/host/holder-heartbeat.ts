import type { Clock } from "../lib/clock.ts";
import { onAbort, untilAborted } from "../lib/runnables.ts";
import type { HostProcess } from "../seams/host.ts";

/** Heartbeats to a lock holder: a connection may be lost without notice. */
export interface HolderHeartbeat {
  readonly clock: Pick<Clock, "after" | "now" | "monotonic">;
  readonly intervalMs: number;
  /** Heartbeat timeout, seconds: the holder ends without a heartbeat for this long, on targets that have `timeout`. */
  readonly timeoutSeconds: number;
}

/** Heartbeats for remote targets, whose sshd may keep a dead connection for hours. */
export const remoteHeartbeat = { intervalMs: 15_000, timeoutSeconds: 60 };

/** A time by both clocks: the monotonic clock stops while the machine is suspended, the wall clock may be set back. */
interface ClockTimes {
  readonly monotonic: number;
  readonly wall: number;
}

const heartbeatByte = ".".charCodeAt(0);

/** A lease on a lock holder: the holder echoes each heartbeat, and ends only after the heartbeat timeout. It starts now, right before the
 *  holder is started. */
export function createHolderLease({ clock, intervalMs, timeoutSeconds }: HolderHeartbeat) {
  const now = (): ClockTimes => ({ monotonic: clock.monotonic(), wall: clock.now() });
  const timeoutMs = timeoutSeconds * 1_000;
  /** Number of unanswered heartbeats after which the holder counts as dead. */
  const maxUnanswered = Math.ceil(timeoutMs / intervalMs);
  /** Send times of unanswered heartbeats, oldest first. */
  const sent: ClockTimes[] = [];
  let provenAt = now();
  let unanswered = 0;
  let send = () => {};
  let renewed = Promise.withResolvers<void>();
  let isPending = false;
  const isValid = () => elapsedMs(provenAt, clock) < timeoutMs - intervalMs;
  const onEchoes = (chunk: Buffer) => {
    for (const byte of chunk) {
      const moment = byte === heartbeatByte ? sent.shift() : undefined;
      if (!moment) continue;
      provenAt = moment;
      unanswered = 0;
    }
    if (!isValid()) return;
    renewed.resolve();
    renewed = Promise.withResolvers<void>();
    isPending = false;
  };
  return {
    /** Sends heartbeats and processes their answers until `ended` aborts. @param onSilence called once if the holder has
     *  answered none for the heartbeat timeout. */
    start({ stdin, stdout }: Pick<HostProcess, "stdin" | "stdout">, ended: AbortSignal, onSilence: () => void): void {
      send = () => {
        if (ended.aborted || !stdin.writable) return;
        sent.push(now());
        stdin.write(".");
      };
      const next = () => {
        if (unanswered >= maxUnanswered) return onSilence();
        unanswered += 1;
        send();
        timer = clock.after(intervalMs, next);
      };
      // The holder's exit reports its end.
      stdin.on("error", () => undefined);
      stdout.on("data", onEchoes);
      let timer = clock.after(intervalMs, next);
      void onAbort(ended).then(() => timer.cancel());
    },
    /** True while the lease is valid: the holder cannot have timed out, with one interval to spare for operations sent to the
     *  target now. */
    isValid,
    /** Sends a heartbeat unless the lease is valid, and resolves once it is. @throws the signal's reason. */
    async renew(signal: AbortSignal): Promise<void> {
      while (!isValid()) {
        const { promise } = renewed;
        if (!isPending) {
          isPending = true;
          send();
        }
        await untilAborted(promise, signal);
      }
    },
  };
}

/** Elapsed time, milliseconds, by the clock that shows more. */
function elapsedMs({ monotonic, wall }: ClockTimes, clock: Pick<Clock, "now" | "monotonic">): number {
  return Math.max(clock.monotonic() - monotonic, clock.now() - wall);
}
