import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { before, describe, test } from "node:test";
import { converse } from "../../harness/conversation.ts";
import { kubectlArgv } from "../../harness/kubectl.ts";
import type { Lab } from "../../harness/lab.ts";
import type { Finished, RunOptions } from "../../harness/processes.ts";
import { openTerminal } from "../../harness/terminal.ts";
import { transports } from "./transports.ts";

/** kubectl exec and what is built on it. */
export function execTests(lab: () => Lab): void {
  for (const { name: transport, env } of transports) {
    describe(`kubectl exec over ${transport}`, { concurrency: 4 }, () => {
      const pod = `exec-${transport.toLowerCase()}`;
      const exec = (args: readonly string[], options: RunOptions = {}): Promise<Finished> =>
        lab().cluster.kubectl(["exec", ...args], { ...options, env });
      before(async () => {
        await lab().pods.create(pod, {});
        await lab().pods.ready(pod);
      });

      test("returns the command's exit code, and stdout separate from stderr", async () => {
        const done = await exec([pod, "--", "sh", "-c", "echo to stdout; echo to stderr >&2; exit 42"]);
        assert.deepEqual(done, {
          code: 42,
          stdout: "to stdout\n",
          stderr: "to stderr\ncommand terminated with exit code 42\n",
        });
        assert.deepEqual(await exec([pod, "--", "true"]), { code: 0, stdout: "", stderr: "" });
      });

      test("forwards arguments unchanged", async () => {
        const words = ["a", "b c", "", "ü & = ? # % +", "'\"\\$(x)\n"];
        assert.equal(
          (await exec([pod, "--", "printf", "[%s]", ...words])).stdout,
          words.map((word) => `[${word}]`).join(""),
        );
      });

      test("forwards stdin and closes it at the end", async () => {
        assert.deepEqual(await exec(["-i", pod, "--", "sh", "-c", "cat; echo the end"], { stdin: "typed\n" }), {
          code: 0,
          stdout: "typed\nthe end\n",
          stderr: "",
        });
        await using talk = converse(
          lab().cluster.startKubectl(
            ["exec", "-i", pod, "--", "sh", "-c", "while read -r line; do echo got $line; done; echo no more; exit 5"],
            { env },
          ),
        );
        for (const line of ["one", "two"]) {
          talk.write(`${line}\n`);
          await talk.says(`got ${line}\n`);
        }
        talk.endInput();
        assert.equal(await talk.ended(), 5);
        assert.equal(talk.stdout(), "got one\ngot two\nno more\n");
      });

      test("gives a command without -i an empty stdin", async () => {
        assert.equal((await exec([pod, "--", "wc", "-c"], { stdin: "unheard" })).stdout, "0\n");
      });

      test("reports why a command cannot be run", async () => {
        const missing = await exec([pod, "--", "/no/such/program"]);
        assert.notEqual(missing.code, 0);
        assert.match(missing.stderr, /\/no\/such\/program.*no such file or directory/);
      });

      test("allocates a terminal that follows the client's size", async () => {
        const { cluster } = lab();
        const script = "stty size; trap 'echo interrupted; exit 9' INT; while :; do stty size; sleep 0.1; done";
        const argv = [
          "env",
          ...Object.entries(env).map(([key, value]) => `${key}=${value}`),
          ...kubectlArgv(cluster.layout, cluster.tools, ["exec", "-it", pod, "--", "sh", "-c", script]),
        ];
        await using terminal = await openTerminal(argv, { rows: 40, columns: 100 });
        await terminal.says(/^40 100\r?$/m);
        await terminal.resize({ rows: 25, columns: 132 });
        await terminal.says(/^25 132\r?$/m);
        terminal.write("\x03");
        await terminal.says("interrupted");
        assert.equal(await terminal.ended(), 9);
      });

      test("copies files both ways for kubectl cp", async () => {
        const { cluster } = lab();
        const [there, back] = [join(cluster.layout.dir, `${pod}-there`), join(cluster.layout.dir, `${pod}-back`)];
        const files = {
          "random.bin": randomBytes(8 << 20),
          "deep/er/text": Buffer.from("text\n"),
          empty: Buffer.alloc(0),
        };
        mkdirSync(join(there, "deep", "er"), { recursive: true });
        for (const [name, content] of Object.entries(files)) writeFileSync(join(there, name), content);
        assert.deepEqual(await cluster.kubectl(["cp", there, `${pod}:/tmp/copied`], { env }), {
          code: 0,
          stdout: "",
          stderr: "",
        });
        const sums = await exec([pod, "--", "sha256sum", ...Object.keys(files).map((name) => `/tmp/copied/${name}`)]);
        assert.deepEqual(
          sums.stdout.trimEnd().split("\n"),
          Object.entries(files).map(
            ([name, content]) => `${createHash("sha256").update(content).digest("hex")}  /tmp/copied/${name}`,
          ),
        );
        assert.equal((await cluster.kubectl(["cp", `${pod}:/tmp/copied`, back], { env })).code, 0);
        for (const [name, content] of Object.entries(files))
          assert.ok(readFileSync(join(back, name)).equals(content), name);
      });
    });
  }

  test("kubectl exec into a container that has ended names the container", async () => {
    const { cluster, pods } = lab();
    await pods.create("over", { restartPolicy: "Never", containers: [{ command: ["true"] }] });
    await pods.outputOf("over");
    const { code, stderr } = await cluster.kubectl(["exec", "over", "--", "true"]);
    assert.equal(code, 1);
    assert.match(stderr, /cannot exec into a container in a completed pod|container not found \("main"\)/);
  });
}
