import type { SshPeer } from "./ssh2-peer.ts";

/** Bytes that wait in a connection until the peer has read; more are held back by who sends them. */
const mostWaiting = 2 ** 20;

/** Holds data back while a peer does not read, or exchanges keys: the window that it announces may be as large as it likes, and ssh2 keeps
 *  all that fits into it. */
export interface Outbound {
  /** Sends now, or once the peer has read. A connection that is lost never does. */
  whenWritable(send: () => void): void;
}

/** Creates it. @param onKeys registers a listener for the end of each key exchange. */
export function createOutbound({ protocol, socket }: SshPeer, onKeys: (listener: () => void) => void): Outbound {
  const waiting = new Set<() => void>();
  const isFull = () => socket.writableLength > mostWaiting || protocol._kexinit !== undefined;
  const sendWaiting = () => {
    if (!protocol._destruct) return waiting.clear();
    for (const send of waiting) {
      if (isFull()) return;
      waiting.delete(send);
      send();
    }
  };
  socket.on("drain", sendWaiting);
  onKeys(sendWaiting);
  return {
    whenWritable(send) {
      if (!protocol._destruct) return;
      if (waiting.size === 0 && !isFull()) send();
      else waiting.add(send);
    },
  };
}
