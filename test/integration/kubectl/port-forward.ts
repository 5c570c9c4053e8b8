import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { before, describe, test } from "node:test";
import { type Conversation, converse } from "../../harness/conversation.ts";
import type { Lab } from "../../harness/lab.ts";
import { networkArgv } from "../../harness/namespaces.ts";
import { type Finished, run } from "../../harness/processes.ts";
import { shell } from "../../harness/pods.ts";
import { type Transport, transports } from "./transports.ts";
import { whole } from "../../matrix.ts";

/** Amount that passes each way through a connection. */
const mebibytes = whole ? 20 : 6;

/** A pod's container with a web server on the pod's loopback alone, that sends back what it is sent. */
export const echoServer = shell(
  "mkdir -p /www/cgi-bin; printf '#!/bin/sh\\nprintf \"Content-Type: text/plain\\\\r\\\\n\\\\r\\\\n\"; exec cat\\n' > /www/cgi-bin/echo; chmod +x /www/cgi-bin/echo; head -c 67108864 /dev/zero > /www/zeros; echo hello > /www/hello; echo ready; exec busybox httpd -f -p 127.0.0.1:9000 -h /www",
  { readinessProbe: { exec: { command: ["sh", "-c", "nc 127.0.0.1 9000 < /dev/null"] }, periodSeconds: 1 } },
);

/** A running kubectl port-forward and its port on the client's loopback. */
export async function forward(
  { cluster }: Pick<Lab, "cluster">,
  pod: string,
  env: Transport["env"],
  port = 9000,
): Promise<Conversation & { readonly port: number }> {
  const talk = converse(cluster.startKubectl(["port-forward", `pod/${pod}`, `:${port}`], { env }));
  const shown = /Forwarding from 127\.0\.0\.1:(\d+) ->/;
  await talk.says(shown);
  return { ...talk, port: Number(shown.exec(talk.stdout())?.[1]) };
}

/** curl in the cluster's network. */
export function curl({ cluster }: Pick<Lab, "cluster">, args: readonly string[]): Promise<Finished> {
  return run(
    networkArgv(cluster.layout, [cluster.tools.path("curl"), "--silent", "--show-error", "--max-time", "60", ...args]),
  );
}

/** kubectl port-forward. */
export function portForwardTests(lab: () => Lab): void {
  for (const { name: transport, env } of transports) {
    describe(`kubectl port-forward over ${transport}`, () => {
      const pod = `forward-${transport.toLowerCase()}`;
      before(async () => {
        await lab().pods.create(pod, { containers: [echoServer] });
        await lab().pods.ready(pod);
      });

      test(`carries ${mebibytes} MiB both ways over several connections to a server on the pod's loopback`, async () => {
        const { cluster, pods } = lab();
        const content = randomBytes(mebibytes << 20);
        const sent = join(cluster.layout.dir, `${pod}-sent`);
        writeFileSync(sent, content);
        await using tunnel = await forward(lab(), pod, env);
        const echoes = [1, 2, 3, 4].map(async (number) => {
          const received = join(cluster.layout.dir, `${pod}-received-${number}`);
          const done = await curl(lab(), [
            "--header",
            "Expect:",
            "--data-binary",
            `@${sent}`,
            "--output",
            received,
            `http://127.0.0.1:${tunnel.port}/cgi-bin/echo`,
          ]);
          assert.equal(done.code, 0, `${done.stderr}${tunnel.stderr()}`);
          return createHash("sha256").update(readFileSync(received)).digest("hex");
        });
        const expected = createHash("sha256").update(content).digest("hex");
        assert.deepEqual(await Promise.all(echoes), [expected, expected, expected, expected]);
        assert.equal((await curl(lab(), [`http://127.0.0.1:${tunnel.port}/hello`])).stdout, "hello\n");
        // The server is on the loopback of the pod: by the pod's address nobody answers.
        const podIP = pods.history(pod).at(-1)?.status?.podIP ?? "";
        assert.equal((await curl(lab(), [`http://${podIP}:9000/hello`])).code, 7);
      });

      test("reports that nothing listens on the port", async () => {
        await using tunnel = await forward(lab(), pod, env, 9);
        assert.notEqual((await curl(lab(), [`http://127.0.0.1:${tunnel.port}/`])).code, 0);
        await lab().cluster.waitFor(
          "kubectl to tell of the refusal",
          () => /connection refused/.test(tunnel.stderr()),
          { explain: tunnel.stderr },
        );
      });
    });
  }
}
