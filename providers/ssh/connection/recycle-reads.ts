import type { EventEmitter } from "node:events";
import { recycleBuffer } from "../../../src/lib/recycle-buffer.ts";

/** Reuses each received buffer once ssh2 has decrypted its content into another buffer. Applies to AES-GCM only: with
 *  ChaCha20-Poly1305, for example, ssh2 keeps a packet in the received buffer until its MAC has arrived.
 *  @param client not yet connected, so that it handles each buffer before this function's listener. */
export function recycleReadBuffers(client: Pick<EventEmitter, "on" | "once">, socket: Pick<EventEmitter, "on">): void {
  let copied = false;
  client.on("handshake", ({ sc }: { readonly sc: { readonly cipher: string } }) => {
    copied = sc.cipher.endsWith("-gcm@openssh.com");
  });
  client.once("handshake", () =>
    socket.on("data", (block: Buffer) => {
      if (copied) recycleBuffer(block);
    }),
  );
}
