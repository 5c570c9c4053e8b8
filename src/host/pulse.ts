import type { Clock } from "../lib/clock.ts";
import { onAbort, untilAborted } from "../lib/service-group.ts";
import type { HostProcess } from "../seams/host.ts";

/** Heartbeat to a command that stays: a connection may be lost without notice. */
export interface Pulse {
  readonly clock: Pick<Clock, "after" | "now" | "monotonic">;
  readonly everyMs: number;
  /** The command ends after this many seconds without a heartbeat, on targets that have `timeout`. */
  readonly silenceSeconds: number;
}

/** The heartbeat to a target on another machine, whose sshd may believe in a dead connection for hours. */
export const remotePulse = { everyMs: 15_000, silenceSeconds: 60 };

/** Knows how long a command on the target has certainly lived: it returns each heartbeat, and ends only after so long without one. */
export interface Proof {
  /** Sends heartbeats and counts their answers until `ended` aborts.
   *  @param onSilence called once when the command has answered none for as long as it would itself wait for one. */
  begin(holder: Pick<HostProcess, "stdin" | "stdout">, ended: AbortSignal, onSilence: () => void): void;
  /** True if the command cannot have run out of heartbeats, with one interval to spare for what is sent to the target now. */
  isFresh(): boolean;
  /** Sends a heartbeat unless the proof is fresh. @returns once it is. @throws the signal's reason. */
  renew(signal: AbortSignal): Promise<void>;
}

/** A moment by both clocks: the monotonic one stands still while the machine sleeps, the wall clock may be set back. */
interface Moment {
  readonly monotonic: number;
  readonly wall: number;
}

const answer = ".".charCodeAt(0);

/** A proof that begins now: the command is about to be started. */
export function createProof({ clock, everyMs, silenceSeconds }: Pulse): Proof {
  const now = (): Moment => ({ monotonic: clock.monotonic(), wall: clock.now() });
  const patienceMs = silenceSeconds * 1_000;
  /** Heartbeats without an answer after which the command is silent. */
  const maxUnanswered = Math.ceil(patienceMs / everyMs);
  /** When the heartbeats were sent that have no answer yet, oldest first. */
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
      // The end of the command is reported by its exit.
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

/** Time since a moment, milliseconds, by whichever clock shows more. */
function elapsedMs({ monotonic, wall }: Moment, clock: Pick<Clock, "now" | "monotonic">): number {
  return Math.max(clock.monotonic() - monotonic, clock.now() - wall);
}
