import type { EventEmitter } from "node:events";
import { giveBack } from "../../../src/lib/give-back.ts";

/** Gives back each block that an SSH connection brings, once ssh2 has deciphered it into another. With ChaCha20-Poly1305 ssh2 keeps a packet in
 *  the block until its sum has come: such a connection's are left alone.
 *  @param client not connected yet, so that it hears of each block first. */
export function giveBackRead(client: Pick<EventEmitter, "on" | "once">, socket: Pick<EventEmitter, "on">): void {
  let copied = false;
  client.on("handshake", ({ sc }: { readonly sc: { readonly cipher: string } }) => {
    copied = sc.cipher.endsWith("-gcm@openssh.com");
  });
  client.once("handshake", () =>
    socket.on("data", (block: Buffer) => {
      if (copied) giveBack(block);
    }),
  );
}
