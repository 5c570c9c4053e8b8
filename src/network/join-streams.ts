import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { Clock } from "../lib/clock.ts";
import { givesBack } from "../lib/give-back.ts";

/** Time without a byte after which a connection between the cluster and a pod is ended, milliseconds: kube-proxy's for established ones
 *  (conntrack.tcpEstablishedTimeout).
 *  @see https://kubernetes.io/docs/reference/config-api/kube-proxy-config.v1alpha1/ */
const idleMs = 24 * 60 * 60 * 1000;

/** Options of a TCP socket whose peer may vanish without a word: it is asked after a minute without a byte. */
export const keepAlive = { keepAlive: true, keepAliveInitialDelay: 60_000 } as const;

/** Resets a socket that has carried no byte in either direction between two looks, one a day. @returns stops looking. */
export function endWhenIdle(socket: Socket, clock: Pick<Clock, "after">): () => void {
  const carried = () => socket.bytesRead + socket.bytesWritten;
  let before = carried();
  const look = () => {
    if (carried() === before) return void socket.resetAndDestroy();
    before = carried();
    timer = clock.after(idleMs, look);
  };
  let timer = clock.after(idleMs, look);
  return () => timer.cancel();
}

/** Joins two connections, each way to its own end: they wait for each other, and what breaks one breaks the other. Both are the call's:
 *  nobody else reads what arrives at them.
 *  @throws what broke them. */
export async function joinStreams(one: Duplex, other: Duplex): Promise<void> {
  const [here, there] = [givesBack(one), givesBack(other)];
  await Promise.all([pipeline(here, there), pipeline(there, here)]);
}
