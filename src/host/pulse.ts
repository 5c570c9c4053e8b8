import type { Clock } from "../lib/clock.ts";
import { onAbort, untilAborted } from "../lib/service-group.ts";
import type { HostProcess } from "../seams/host.ts";

/** Heartbeats to a lock holder: a connection may be lost without notice. */
export interface Pulse {
  readonly clock: Pick<Clock, "after" | "now" | "monotonic">;
  readonly everyMs: number;
  /** Heartbeat timeout, seconds: the holder ends without a heartbeat for this long, on targets that have `timeout`. */
  readonly silenceSeconds: number;
}

/** Heartbeats for remote targets, whose sshd may keep a dead connection for hours. */
export const remotePulse = { everyMs: 15_000, silenceSeconds: 60 };

/** A lease on a lock holder: the holder echoes each heartbeat, and ends only after the heartbeat timeout. */
export interface Proof {
  /** Sends heartbeats and processes their answers until `ended` aborts. @param onSilence called once if the holder has
   *  answered none for the heartbeat timeout. */
  begin(holder: Pick<HostProcess, "stdin" | "stdout">, ended: AbortSignal, onSilence: () => void): void;
  /** True while the lease is valid: the holder cannot have timed out, with one interval to spare for operations sent to the
   *  target now. */
  isFresh(): boolean;
  /** Sends a heartbeat unless the lease is valid, and resolves once it is. @throws the signal's reason. */
  renew(signal: AbortSignal): Promise<void>;
}

/** A time by both clocks: the monotonic clock stops while the machine is suspended, the wall clock may be set back. */
interface Moment {
  readonly monotonic: number;
  readonly wall: number;
}

const answer = ".".charCodeAt(0);

/** Creates a lease that starts now, right before the holder is started. */
export function createProof({ clock, everyMs, silenceSeconds }: Pulse): Proof {
  const now = (): Moment => ({ monotonic: clock.monotonic(), wall: clock.now() });
  const patienceMs = silenceSeconds * 1_000;
  /** Number of unanswered heartbeats after which the holder counts as dead. */
  const maxUnanswered = Math.ceil(patienceMs / everyMs);
  /** Send times of unanswered heartbeats, oldest first. */
  const sent: Moment[] = [];
  let proved = now();
  let unanswered = 0;
  let send = () => {};
  let renewed = Promise.withResolvers<void>();
  let isAsked = false;
  const isFresh = () => elapsedMs(proved, clock) < patienceMs - everyMs;
  const onAnswers = (chunk: Buffer) => {
    for (const byte of chunk) {
      const moment = byte === answer ? sent.shift() : undefined;
      if (!moment) continue;
      proved = moment;
      unanswered = 0;
    }
    if (!isFresh()) return;
    renewed.resolve();
    renewed = Promise.withResolvers<void>();
    isAsked = false;
  };
  return {
    begin({ stdin, stdout }, ended, onSilence) {
      send = () => {
        if (ended.aborted || !stdin.writable) return;
        sent.push(now());
        stdin.write(".");
      };
      const next = () => {
        if (unanswered >= maxUnanswered) return onSilence();
        unanswered += 1;
        send();
        timer = clock.after(everyMs, next);
      };
      // The holder's exit reports its end.
      stdin.on("error", () => undefined);
      stdout.on("data", onAnswers);
      let timer = clock.after(everyMs, next);
      void onAbort(ended).then(() => timer.cancel());
    },
    isFresh,
    async renew(signal) {
      while (!isFresh()) {
        const { promise } = renewed;
        if (!isAsked) {
          isAsked = true;
          send();
        }
        await untilAborted(promise, signal);
      }
    },
  };
}

/** Elapsed time, milliseconds, by the clock that shows more. */
function elapsedMs({ monotonic, wall }: Moment, clock: Pick<Clock, "now" | "monotonic">): number {
  return Math.max(clock.monotonic() - monotonic, clock.now() - wall);
}
