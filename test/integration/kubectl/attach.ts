import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { converse } from "../../harness/conversation.ts";
import { kubectlArgv } from "../../harness/kubectl.ts";
import type { Lab } from "../../harness/lab.ts";
import { images, shell } from "../../harness/pods.ts";
import { openTerminal } from "../../harness/terminal.ts";
import { transports } from "./transports.ts";

/** kubectl attach, and kubectl run on top of it. */
export function attachTests(lab: () => Lab): void {
  for (const { name: transport, env } of transports) {
    describe(`kubectl attach over ${transport}`, { concurrency: 4 }, () => {
      const named = (what: string): string => `attach-${what}-${transport.toLowerCase()}`;

      test("-i writes to the container's process, and closes its stdin at the end", async () => {
        const { cluster, pods } = lab();
        const pod = named("input");
        await pods.create(pod, {
          restartPolicy: "Never",
          containers: [
            shell("while read -r line; do echo got $line; echo aside >&2; done; echo no more", {
              stdin: true,
              stdinOnce: true,
            }),
          ],
        });
        await pods.ready(pod);
        await using talk = converse(cluster.startKubectl(["attach", "-i", pod], { env }));
        talk.write("one\n");
        await talk.says("got one\n");
        talk.endInput();
        assert.equal(await talk.ended(), 0);
        assert.equal(talk.stdout(), "got one\nno more\n");
        assert.match(talk.stderr(), /^aside$/m);
        assert.deepEqual((await pods.outputOf(pod)).trimEnd().split("\n").sort(), ["aside", "got one", "no more"]);
      });

      test("without -i, shows output from the time of the call to several clients, until the container ends", async () => {
        const { cluster, pods } = lab();
        const pod = named("output");
        await pods.create(pod, {
          restartPolicy: "Never",
          containers: [
            shell(
              "echo before; touch /tmp/begun; while [ ! -e /tmp/go ]; do echo tick; sleep 0.1; done; echo last; sleep 2",
            ),
          ],
        });
        await pods.ready(pod);
        await cluster.mustKubectl(["exec", pod, "--", "sh", "-c", "until [ -e /tmp/begun ]; do sleep 0.1; done"]);
        await using first = converse(cluster.startKubectl(["attach", pod], { env }));
        await using second = converse(cluster.startKubectl(["attach", pod], { env }));
        for (const client of [first, second]) await client.says("tick\n");
        await cluster.mustKubectl(["exec", pod, "--", "touch", "/tmp/go"]);
        for (const client of [first, second]) {
          assert.equal(await client.ended(), 0);
          assert.match(client.stdout(), /^(tick\n)+last\n$/);
        }
      });

      test("-it attaches to the container's terminal, with the client's size", async () => {
        const { cluster, pods } = lab();
        const pod = named("terminal");
        await pods.create(pod, { restartPolicy: "Never", containers: [{ command: ["sh"], stdin: true, tty: true }] });
        await pods.ready(pod);
        const argv = [
          "env",
          ...Object.entries(env).map(([key, value]) => `${key}=${value}`),
          ...kubectlArgv(cluster.layout, cluster.tools, ["attach", "-it", pod]),
        ];
        await using terminal = await openTerminal(argv, { rows: 41, columns: 101 });
        await terminal.says("try pressing enter");
        terminal.write("while [ \"$(stty size)\" != '41 101' ]; do sleep 0.1; done; echo first $((20 + 1))\n");
        await terminal.says("first 21");
        await terminal.resize({ rows: 30, columns: 90 });
        terminal.write("while [ \"$(stty size)\" != '30 90' ]; do sleep 0.1; done; echo second $((20 + 2))\n");
        await terminal.says("second 22");
        terminal.write("exit 6\n");
        await terminal.ended();
        await pods.until(
          pod,
          "to end with the shell's exit code",
          (seen) => seen.status?.containerStatuses?.[0]?.state?.terminated?.exitCode === 6,
        );
      });

      test("kubectl run -i --rm behaves like the command itself", async () => {
        const done = await lab().cluster.kubectl(
          [
            "run",
            named("run"),
            "-i",
            "--rm",
            "--quiet",
            "--restart=Never",
            `--image=${images.busybox}`,
            "--",
            "sh",
            "-c",
            "cat; exit 3",
          ],
          { stdin: "through a pod\n", env },
        );
        assert.equal(done.stdout, "through a pod\n", done.stderr);
        assert.equal(done.code, 3, done.stderr);
      });
    });
  }
}
