import assert from "node:assert/strict";
import { once } from "node:events";
import { appendFileSync, readdirSync, renameSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { CoreEvent, Pod } from "../../src/objects.ts";
import { type Lab, startLab } from "../harness/lab.ts";
import { shell, statusOf } from "../harness/pods.ts";
import { providerUnderTest, runtimeDaemons } from "../harness/runtime-daemon.ts";
import { waitFor } from "../harness/wait.ts";

const maxBytes = 256 * 1024;
const maxFiles = 4;
const isDocker = runtimeDaemons[providerUnderTest()].role !== "containerd";
const config = { containerLogMaxSize: "256Ki", containerLogMaxFiles: maxFiles, containerLogMonitorInterval: "3s" };
const rotated = /^0\.log\.\d{8}-\d{6}(\.gz)?$/;

let lab: Lab;
before(async () => {
  lab = await startLab("log-rotation", { config });
});
after(() => lab?.[Symbol.asyncDispose]());

/** Directory of a container's logs on the target. */
function logsOf({ metadata: { name, uid } }: Pod): string {
  return join(lab.cluster.layout.podLogs, `default_${name}_${uid}`, "main");
}

/** All that a follower of the pod's log gets until its end, as lines of any length: the runtime may cut one in two where it begins
 *  a new log. */
async function followed(name: string) {
  const follower = lab.cluster.startKubectl(["logs", "--follow", name]);
  const parts: Buffer[] = [];
  follower.stdout?.on("data", (part: Buffer) => parts.push(part));
  const closed = once(follower, "close");
  const { pid = assert.fail("kubectl does not run") } = follower;
  await waitFor("the follower to see something", async () => parts.length > 0);
  return {
    pause: () => process.kill(pid, "SIGSTOP"),
    resume: () => process.kill(pid, "SIGCONT"),
    async text(): Promise<string> {
      const [code] = await closed;
      assert.equal(code, 0);
      return Buffer.concat(parts).toString().replaceAll("\n", "");
    },
  };
}

const padding = "x".repeat(90);
const lines = (first: number, last: number): string =>
  Array.from({ length: last - first + 1 }, (_, at) => `${first + at} ${padding}`).join("");
/** Writes lines with these numbers as fast as it can. */
const writing = (first: number, last: number) => `seq ${first} ${last} | sed 's/$/ ${padding}/'`;

describe("the logs of containers", { timeout: 300_000, concurrency: 4 }, () => {
  test("a follower reads each line of 40 MB once, at full speed, across rotations", async (t) => {
    const { pods } = lab;
    const [first, last] = [1_000_000, 1_400_000];
    const script = `echo begin; until [ -e /tmp/go ]; do sleep 0.1; done; ${writing(first, last)}; sleep 10; echo end`;
    await pods.create("fast", { restartPolicy: "Never", containers: [shell(script)] });
    const pod = await pods.ready("fast");
    const following = await followed("fast");
    await lab.cluster.mustKubectl(["exec", "fast", "--", "touch", "/tmp/go"]);
    const text = await following.text();
    if (isDocker) return assert.ok(text.endsWith("end"), "the follower did not see the end");
    assert.ok(text === `begin${lines(first, last)}end`, `${text.length} characters, and not those that were written`);
    const files = readdirSync(logsOf(pod));
    t.diagnostic(`files: ${files.join(" ")}`);
    assert.ok(files.some((name) => rotated.test(name)));
  });

  test("a paused follower misses nothing while logs are rotated and compressed", async (t) => {
    if (isDocker) return t.diagnostic("Docker rotates its logs itself, and removes the oldest");
    const { pods, cluster } = lab;
    // More at a time than the connections on the way take in.
    const bursts = [1, 2, 3].map((burst) => [burst * 1_000_000, burst * 1_000_000 + 150_000] as const);
    // Each step waits for a file of its own: a burst may be rotated twice, before it has been written.
    const until = (step: number) => `until [ -e /tmp/go-${step} ]; do sleep 0.1; done`;
    const writes = bursts.map(([first, last], at) => `${until(at + 1)}; ${writing(first, last)}`);
    const script = `echo begin; ${writes.join("; ")}; ${until(4)}; echo end`;
    const go = (step: number) => cluster.mustKubectl(["exec", "patient", "--", "touch", `/tmp/go-${step}`]);
    await pods.create("patient", { restartPolicy: "Never", containers: [shell(script)] });
    const directory = logsOf(await pods.ready("patient"));
    const following = await followed("patient");
    following.pause();
    const further = async (rotations: number) => {
      await go(rotations);
      const there = () => readdirSync(directory).filter((name) => rotated.test(name)).length;
      await waitFor(`rotation ${rotations}`, async () => there() >= rotations, { timeoutMs: 30_000 });
    };
    for (const rotations of [1, 2, 3]) await further(rotations);
    assert.ok(readdirSync(directory).some((name) => name.endsWith(".gz")));
    following.resume();
    await go(4);
    const text = await following.text();
    const expected = `begin${bursts.map(([first, last]) => lines(first, last)).join("")}end`;
    assert.ok(text === expected, `${text.length} characters, and not those that were written`);
  });

  test("keeps the configured number of files, compresses older ones, and shows the current one without --follow", async () => {
    const { pods, cluster } = lab;
    const script = `n=0; while :; do ${writing(1, 4000)}; sleep 3; done`;
    await pods.create("steady", { containers: [shell(script)] });
    const pod = await pods.ready("steady");
    if (isDocker) {
      // Docker's own files: see docs/deviations.md.
      await new Promise((resolve) => setTimeout(resolve, 7_000));
      assert.deepEqual(readdirSync(logsOf(pod)), ["0.log"]);
      assert.ok(statSync(join(logsOf(pod), "0.log")).size <= maxBytes + 4096);
      return;
    }
    const files = await waitFor(
      "all files that may be, the older ones compressed",
      async () => {
        const there = readdirSync(logsOf(pod)).toSorted();
        assert.ok(there.filter((name) => !name.endsWith(".tmp")).length <= maxFiles, there.join(" "));
        const compressed = there.filter((name) => name.endsWith(".gz")).length;
        return there.length === maxFiles && compressed === maxFiles - 2 ? there : undefined;
      },
      { timeoutMs: 60_000, everyMs: 20 },
    );
    assert.ok(files.every((name) => name === "0.log" || rotated.test(name)));
    const shown = await cluster.mustKubectl(["logs", "steady"]);
    assert.ok(
      shown.length < 4 * 4000 * (padding.length + 5),
      `${shown.length} bytes are more than the current file has`,
    );
  });

  test("completes a rotation that was cut short after any of its steps, unnoticed by a follower", async (t) => {
    if (isDocker) return t.diagnostic("Docker rotates its logs itself");
    const { pods, cluster } = lab;
    const script = "n=0; until [ -e /tmp/end ]; do n=$((n+1)); echo $n; sleep 0.1; done; sleep 2; echo written $n";
    await pods.create("interrupted", { restartPolicy: "Never", containers: [shell(script)] });
    const directory = logsOf(await pods.ready("interrupted"));
    const log = join(directory, "0.log");
    const following = await followed("interrupted");
    for (const second of [1, 2, 3]) {
      renameSync(log, `${log}.20200101-00000${second}`);
      await waitFor("the log to be begun anew", async () => readdirSync(directory).includes("0.log"));
    }
    writeFileSync(`${log}.20200101-000001.tmp`, "half");
    writeFileSync(`${log}.20200101-000002.gz`, "whole");
    // A log that grows to its limit: lines that do not parse show nowhere.
    appendFileSync(log, `${" ".repeat(maxBytes)}\n`);
    await waitFor("the rotation", async () => readdirSync(directory).some((name) => /\.202[1-9].*\d$/.test(name)));
    assert.ok(!readdirSync(directory).some((name) => name.endsWith(".tmp")));
    await cluster.mustKubectl(["exec", "interrupted", "--", "touch", "/tmp/end"]);
    const text = await following.text();
    const count = Number(/written (\d+)$/.exec(text)?.[1] ?? assert.fail(text));
    assert.equal(text, `${Array.from({ length: count }, (_, at) => at + 1).join("")}written ${count}`);
  });

  test("reports a container OOM kill on the container, and a system OOM on the node", async () => {
    const { pods, cluster } = lab;
    const nodeEvents = () =>
      pods.api
        .get<{ items: CoreEvent[] }>(
          `/api/v1/namespaces/default/events?fieldSelector=involvedObject.name=${cluster.nodeName},reason=SystemOOM`,
        )
        .then(({ items }) => items.map(({ message }) => message));
    const limited = { resources: { limits: { memory: "32Mi" } } };
    await pods.create("greedy", {
      restartPolicy: "Never",
      containers: [shell("tail /dev/zero; sleep 1; exit 0", limited)],
    });
    const over = await pods.until("greedy", "its end", (pod) => statusOf(pod)?.state?.terminated !== undefined);
    const { reason, exitCode } = statusOf(over)?.state?.terminated ?? {};
    if (!isDocker) assert.equal(reason, "OOMKilled");
    assert.ok(exitCode === 0 || exitCode === 137, String(exitCode));
    const name = `victim-${process.pid}`;
    for (const line of [
      "test invoked oom-killer: gfp_mask=0x0",
      `Out of memory: Killed process 4711 (${name}) total-vm:1kB`,
    ])
      writeFileSync("/dev/kmsg", `${line}\n`);
    const message = `System OOM encountered, victim process: ${name}, pid: 4711`;
    await waitFor(`an event ${message}`, async () => (await nodeEvents()).includes(message));
    assert.ok(
      !(await nodeEvents()).some((told) => told?.includes("tail")),
      "the container's OOM is told as the node's",
    );
  });
});
