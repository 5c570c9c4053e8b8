import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { Clock } from "./clock.ts";
import { recycleWrittenBuffers } from "./recycle-buffer.ts";

/** Idle time after which a connection between the cluster and a pod is reset, milliseconds: kube-proxy's timeout for established
 *  connections (conntrack.tcpEstablishedTimeout).
 *  @see https://kubernetes.io/docs/reference/config-api/kube-proxy-config.v1alpha1/ */
const idleMs = 24 * 60 * 60 * 1000;

/** TCP keepalive options, for peers that may vanish silently: probes start after an idle minute. */
export const tcpKeepAlive = { keepAlive: true, keepAliveInitialDelay: 60_000 } as const;

/** Resets a socket that has moved no byte in either direction between two daily checks. @returns stops the checks. */
export function endWhenIdle(socket: Socket, clock: Pick<Clock, "after">): () => void {
  const byteCount = () => socket.bytesRead + socket.bytesWritten;
  let before = byteCount();
  const check = () => {
    if (byteCount() === before) return void socket.resetAndDestroy();
    before = byteCount();
    timer = clock.after(idleMs, check);
  };
  let timer = clock.after(idleMs, check);
  return () => timer.cancel();
}

/** Pipes two connections into each other. Half-closes are passed on; an error on one side breaks the other. Takes ownership of both.
 *  @throws the error that broke them. */
export async function joinStreams(one: Duplex, other: Duplex): Promise<void> {
  const [here, there] = [recycleWrittenBuffers(one), recycleWrittenBuffers(other)];
  await Promise.all([pipeline(here, there), pipeline(there, here)]);
}
