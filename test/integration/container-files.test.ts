import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { Pod } from "../../src/objects.ts";
import { type Lab, startLab } from "../harness/lab.ts";
import { type ContainerDraft, shell, type SpecDraft, statusOf } from "../harness/pods.ts";

/** What no pod may be shown, nor anybody through a pod. */
const precious = "precious-5e0c3b9a71";
const named = (prefix: string, count: number): string[] =>
  Array.from({ length: count }, (_, index) => `${prefix}-${index}`);

// A container that reaches its own log, and the file of its last message, may put something else in their places.
describe("logs and termination messages replaced by their container", { timeout: 300_000 }, () => {
  let lab: Lab;
  let secret: string;

  before(async () => {
    lab = await startLab("containers");
    const { cluster, pods } = lab;
    secret = join(cluster.layout.dir, "precious");
    // It would pass for a log in either format.
    writeFileSync(
      secret,
      `2026-01-01T00:00:00Z stdout F ${precious}\n${JSON.stringify({ log: `${precious}\n`, stream: "stdout", time: "2026-01-01T00:00:00Z" })}\n`,
    );
    await pods.create("neighbour", { containers: [shell(`echo ${precious}; exec sleep infinity`)] });
    await pods.create("honest", { containers: [shell("echo honest; exec sleep infinity")] });
    await Promise.all(["neighbour", "honest"].map((name) => pods.ready(name)));
  });
  after(() => lab?.[Symbol.asyncDispose]());

  /** A container that sees where logs and message files lie, and knows its own as $LOG and $MESSAGE. */
  const meddling = (script: string, more: ContainerDraft = {}): SpecDraft => {
    const { layout } = lab.cluster;
    const find = [
      "LOG=$(ls -d /logs/default_${NAME}_*/main)/0.log",
      "MESSAGE=$(ls -d /pods/$UID_/containers/main/*)",
      // A link in a container leads nowhere, where it is one that the runtime's own files lie behind.
      "until test -e $LOG -o -L $LOG; do sleep 0.1; done",
    ];
    const field = (name: string, fieldPath: string) => ({ name, valueFrom: { fieldRef: { fieldPath } } });
    return {
      volumes: [
        { name: "logs", hostPath: { path: layout.podLogs } },
        { name: "pods", hostPath: { path: join(layout.kubeletRoot, "pods") } },
      ],
      containers: [
        shell(`echo own; ${find.join("; ")}; ${script}`, {
          env: [field("NAME", "metadata.name"), field("UID_", "metadata.uid")],
          volumeMounts: ["logs", "pods"].map((name) => ({ name, mountPath: `/${name}` })),
          ...more,
        }),
      ],
    };
  };
  const until = (name: string, what: string, holds: (pod: Pod) => boolean) => lab.pods.until(name, what, holds);
  const message = (name: string) =>
    until(name, "its end to be told", (pod) => statusOf(pod)?.state?.terminated !== undefined).then(
      (pod) => statusOf(pod)?.state?.terminated?.message ?? "",
    );
  /** What kubectl shows, within ten seconds. */
  const shown = async (name: string, ...more: string[]) => {
    const { code, stdout, stderr } = await lab.cluster.kubectl(["logs", name, ...more], { timeoutMs: 20_000 });
    assert.notEqual(code, 124, `kubectl logs ${name} hung`);
    return stdout + stderr;
  };

  /** What a log may be replaced by. */
  const links = (): Readonly<Record<string, string>> => ({
    "a link to a file elsewhere": `ln -s ${secret}`,
    "a link to another container's log": "ln -s $(ls -d /logs/default_neighbour_*/main | sed s,^/logs,$LOGS,)/0.log",
  });

  test("never shows the target of a log that is a symbolic link, even with --follow", async () => {
    const { pods, cluster } = lab;
    for (const [index, [what, link]] of Object.entries(links()).entries()) {
      const name = `links-${index}`;
      const script = `LOGS=${cluster.layout.podLogs}; rm $LOG; ${link} $LOG; touch /tmp/done; exec sleep infinity`;
      const readinessProbe = { exec: { command: ["test", "-e", "/tmp/done"] }, periodSeconds: 1, timeoutSeconds: 20 };
      await pods.create(name, meddling(script, { readinessProbe }));
      await pods.ready(name);
      for (const more of [[], ["--tail=5"], ["--timestamps"]])
        assert.doesNotMatch(await shown(name, ...more), new RegExp(precious), what);
      const following = cluster.startKubectl(["logs", "--follow", name], { stdio: ["ignore", "pipe", "pipe"] });
      let said = "";
      for (const stream of [following.stdout, following.stderr])
        stream?.on("data", (chunk: Buffer) => (said += chunk.toString()));
      // Whatever it would show it shows at once.
      assert.match(await shown("honest"), /honest/);
      following.kill("SIGKILL");
      assert.doesNotMatch(said, new RegExp(precious), what);
    }
  });

  test("reading a log that is a FIFO blocks neither this request nor others", async () => {
    const { pods } = lab;
    const names = named("pipes", 6);
    const script = "rm $LOG; mkfifo $LOG; touch /tmp/done; exec sleep infinity";
    const readinessProbe = { exec: { command: ["test", "-e", "/tmp/done"] }, periodSeconds: 1, timeoutSeconds: 20 };
    await Promise.all(names.map((name) => pods.create(name, meddling(script, { readinessProbe }))));
    await Promise.all(names.map((name) => pods.ready(name)));
    const asked = [...names, ...names].map((name) => shown(name));
    assert.equal(await shown("honest"), "honest\n");
    for (const said of await Promise.all(asked)) assert.doesNotMatch(said, new RegExp(precious));
  });

  test("does not read a termination message that is a link, a FIFO or a directory, and reports the exit at once", async () => {
    const { pods } = lab;
    const ways = [`ln -s ${secret}`, "mkfifo", "mkfifo", "mkfifo", "mkfifo", "mkfifo", "mkdir"];
    const names = named("last-words", ways.length);
    await Promise.all(
      names.map((name, index) =>
        pods.create(name, { restartPolicy: "Never", ...meddling(`rm $MESSAGE; ${ways[index]} $MESSAGE; exit 3`) }),
      ),
    );
    for (const name of names) {
      const text = await message(name);
      assert.doesNotMatch(text, new RegExp(precious));
      assert.match(text, /^Error on reading termination log /, name);
    }
  });

  test("takes no termination message from a log that is a symbolic link", async () => {
    const { pods, cluster } = lab;
    const names = named("silent", Object.keys(links()).length);
    await Promise.all(
      Object.values(links()).map((link, index) => {
        const script = `LOGS=${cluster.layout.podLogs}; rm $LOG; ${link} $LOG; exit 3`;
        const more: ContainerDraft = { terminationMessagePolicy: "FallbackToLogsOnError" };
        return pods.create(names[index] ?? "", { restartPolicy: "Never", ...meddling(script, more) });
      }),
    );
    for (const name of names) assert.doesNotMatch(await message(name), new RegExp(precious));
  });
});
