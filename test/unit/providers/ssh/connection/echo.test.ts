import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { type Socket, connect, createServer } from "node:net";
import { test } from "node:test";
import ssh2, { type CipherAlgorithm } from "ssh2";
import { channelStream } from "../../../../../providers/ssh/connection/channel-stream.ts";
import { fromCallback } from "../../../../../providers/ssh/connection/connection.ts";
import { createLoss } from "../../../../../providers/ssh/connection/loss.ts";
import { recycleReadBuffers } from "../../../../../providers/ssh/connection/recycle-reads.ts";
import { coalesceWrites } from "../../../../../providers/ssh/connection/coalesce-writes.ts";
import { recycleWrittenBuffers } from "../../../../../src/lib/recycle-buffer.ts";
import { joinStreams } from "../../../../../src/lib/join-streams.ts";
import { listen } from "../../../../harness/ports.ts";
import { sshKey } from "../../../../harness/ssh-keys.ts";

const bytes = randomBytes(8 * 1024 * 1024);
const ciphers: readonly CipherAlgorithm[] = ["aes128-gcm@openssh.com", "chacha20-poly1305@openssh.com", "aes128-ctr"];

/** An SSH server that echoes the data of each forwarded connection. */
function echoServer(cipher: CipherAlgorithm): ssh2.Server {
  const hostKey = sshKey("rsa").privateKey.export({ type: "pkcs1", format: "pem" });
  return new ssh2.Server({ hostKeys: [hostKey], algorithms: { cipher: [cipher] } }, (connection) => {
    connection.on("authentication", (asked) => asked.accept());
    connection.on("error", () => connection.end());
    connection.on("tcpip", (take) => {
      const channel = take();
      channel.pipe(channel);
    });
  });
}

for (const cipher of ciphers)
  test(`echoes data over ${cipher} unchanged: no buffer is recycled too early`, {
    timeout: 60_000,
  }, async () => {
    const sshd = echoServer(cipher);
    const client = new ssh2.Client();
    const socket = coalesceWrites(recycleWrittenBuffers(connect({ host: "127.0.0.1", port: await listen(sshd) })));
    recycleReadBuffers(client, socket);
    client.connect({ username: "me", sock: socket });
    await once(client, "ready");
    const { lost, onLost } = createLoss(() => new Error("lost"));
    const carrier = { lost, onLost, whenWritable: (send: () => void) => send() };
    const carry = async (pod: Socket) => {
      const channel = await fromCallback((done) => client.forwardOut("127.0.0.1", 0, "10.0.0.1", 80, done));
      await joinStreams(pod, channelStream(channel, carrier));
    };
    const carried = Promise.withResolvers<void>();
    const door = createServer({ allowHalfOpen: true }, (pod) => carried.resolve(carry(pod)));
    const pod = connect({ host: "127.0.0.1", port: await listen(door), allowHalfOpen: true });
    pod.end(bytes);
    assert.equal(await digestOf(pod), createHash("sha256").update(bytes).digest("hex"));
    await carried.promise;
    client.end();
    door.close();
    sshd.close();
  });

async function digestOf(stream: Socket): Promise<string> {
  const hash = createHash("sha256");
  for await (const block of stream) hash.update(block as Buffer);
  return hash.digest("hex");
}
