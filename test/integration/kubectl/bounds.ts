import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { maxForwarded } from "../../../src/streams/forward-slots.ts";
import { controlFrame, words } from "../../fakes/spdy-client.ts";
import { forgetPeak, memoryOf } from "../../harness/holdings.ts";
import { askKubelet } from "../../harness/kubelet-api.ts";
import { dialSpdy, dialSpdyClient } from "../../harness/kubelet-stream.ts";
import type { Lab } from "../../harness/lab.ts";
import { certificatesIn } from "../../harness/certificates.ts";
import { echoServer } from "./port-forward.ts";

/** MiB that a client who does all it may can take of the process, at most. */
const allowance = 24;
/** Bytes that the client sends: the kubelet stops reading at 14 MB. */
const sends = 60_000_000;

/** Sends pings and reads no answer, until nothing is taken any more. @returns MiB by which the agent grew meanwhile. */
async function pingWithoutEnd({ agent, cluster }: Lab): Promise<number> {
  using dialed = await dialSpdy(cluster, "/portForward/default/bounded", "portforward.k8s.io");
  const { socket } = dialed;
  socket.pause();
  const pings = Buffer.concat(Array.from({ length: 5000 }, () => controlFrame(6, words(1))));
  forgetPeak(agent.pid);
  const { now } = memoryOf(agent.pid);
  let [sent, stuck] = [0, false];
  while (sent < sends && !stuck) {
    const taken = new Promise<boolean>((resolve) => void socket.write(pings, () => resolve(false)));
    stuck = await Promise.race([taken, sleep(3000, true)]);
    if (!stuck) sent += pings.length;
  }
  assert.ok(stuck, "the client is read on");
  return memoryOf(agent.pid).peak - now;
}

/** Clients that take more than their share. */
export function boundTests(lab: () => Lab): void {
  describe("limits for misbehaving clients", { timeout: 180_000 }, () => {
    before(async () => {
      await lab().pods.create("bounded", { containers: [echoServer] });
      await lab().pods.ready("bounded");
    });

    test("endless pings from a client that does not read take no memory", async () => {
      // The process may grow by itself meanwhile: its heap of young objects takes up to 48 MiB once, and what other work of the node leaves
      // on a busy machine is collected late. Pings that are kept would take memory each time.
      const takes: number[] = [];
      while (takes.length < 4 && !takes.some((take) => take < allowance)) takes.push(await pingWithoutEnd(lab()));
      assert.ok(Math.min(...takes) < allowance, `the pings of ${takes.length} clients took ${takes.join(", ")} MiB`);
    });

    test("limits forwarded connections, reports it on the error stream, and serves the rest", async () => {
      const { cluster } = lab();
      using dialed = await dialSpdyClient(cluster, "/portForward/default/bounded", "portforward.k8s.io");
      const { client } = dialed;
      const open = async (requestid: string) => {
        const error = await client.open({ streamtype: "error", port: "9000", requestid });
        await error.end();
        return { error, data: await client.open({ streamtype: "data", port: "9000", requestid }) };
      };
      // The port-forward itself is one of them.
      const standing = [];
      for (let at = 1; at < maxForwarded.toPod; at++) standing.push(await open(String(at)));
      const more = await client.open({ streamtype: "error", port: "9000", requestid: "more" });
      assert.match(await more.text, /^no more than \d+ connections are forwarded to this pod at a time: close some/);
      assert.equal((await cluster.mustKubectl(["exec", "bounded", "--", "echo", "here"])).trim(), "here");
      const answers = standing.map(async ({ data }) => {
        await data.write("GET /hello HTTP/1.0\r\n\r\n");
        return data.text;
      });
      for (const answer of await Promise.all(answers)) assert.match(answer, /hello\n$/);
    });

    test("limits the number of ports of one port-forward request", async () => {
      const { cluster } = lab();
      const headers = [
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Protocol: v4.channel.k8s.io",
      ];
      const certificate = certificatesIn(cluster.layout.pki).apiServerKubeletClient;
      const ports = (many: number) => `/portForward/default/bounded?port=${"9000,".repeat(many - 1)}9000`;
      const { status, body } = await askKubelet(cluster, ports(20_000), { certificate, headers });
      assert.equal(status, 400);
      assert.match(body, /names more than 128 ports/);
    });
  });
}
