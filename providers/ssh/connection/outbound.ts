import type { SshPeer } from "./ssh2-peer.ts";

/** Limit of bytes buffered in a connection; beyond it, senders have to wait. */
const maxBufferedBytes = 2 ** 20;

/** Holds data back while the peer does not read or is exchanging keys. Needed since a peer may announce a window of any size, and ssh2 buffers
 *  all data that fits into it. @param onKeyExchange registers a listener for the end of each key exchange. */
export function createOutbound({ protocol, socket }: SshPeer, onKeyExchange: (listener: () => void) => void) {
  const waiting = new Set<() => void>();
  const isFull = () => socket.writableLength > maxBufferedBytes || protocol._kexinit !== undefined;
  const sendWaiting = () => {
    if (!protocol._destruct) return waiting.clear();
    for (const send of waiting) {
      if (isFull()) return;
      waiting.delete(send);
      send();
    }
  };
  socket.on("drain", sendWaiting);
  onKeyExchange(sendWaiting);
  return {
    /** Calls `send` now, or once the peer has read enough; never after the connection is lost. */
    whenWritable(send: () => void): void {
      if (!protocol._destruct) return;
      if (waiting.size === 0 && !isFull()) send();
      else waiting.add(send);
    },
  };
}
