import assert from "node:assert/strict";
import { appendFileSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { gunzipSync } from "node:zlib";
import { type Agent, startGraftlet } from "../harness/agent.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { particulars } from "../harness/particulars.ts";
import { openPods, type Pods, shell } from "../harness/pods.ts";
import { providerUnderTest } from "../harness/runtime-daemon.ts";
import type { RuntimeProxy } from "../harness/runtime-proxy.ts";

const maxBytes = 256 * 1024;
const maxFiles = 5;

// A proxy between graftlet and the runtime makes the points exact at which it is killed.
describe("graftlet killed while it rotates a log", { timeout: 300_000 }, () => {
  let cluster: Cluster;
  let proxy: RuntimeProxy;
  let agent: Agent;
  let pods: Pods;
  let directory: string;

  const start = async () => {
    const config = {
      containerLogMaxSize: "256Ki",
      containerLogMaxFiles: maxFiles,
      containerLogMonitorInterval: "3s",
    };
    agent = await startGraftlet(cluster, { config, runtimeSocket: proxy.socket });
  };
  const files = () => readdirSync(directory).toSorted();
  /** Numbers that the container has written, from the oldest file to the current one. */
  const written = (): readonly number[] => {
    const [current = "", ...rotated] = files();
    const text = [...rotated, current].map((name) => {
      const content = readFileSync(join(directory, name));
      return String(name.endsWith(".gz") ? gunzipSync(content) : content);
    });
    return [...text.join("").matchAll(/ stdout F (\d+)$/gm)].map(([, line]) => Number(line));
  };

  before(async () => {
    cluster = await startCluster({ name: "rotation-crash" });
    proxy = await particulars[providerUnderTest()].startProxy(cluster);
    pods = await openPods(cluster);
    await start();
    const script = "n=0; while :; do n=$((n+1)); echo $n; sleep 0.05; done";
    await pods.create("writer", { containers: [shell(script)] });
    const { metadata } = await pods.ready("writer");
    directory = join(cluster.layout.podLogs, `default_writer_${metadata.uid}`, "main");
  });
  after(async () => {
    await agent?.[Symbol.asyncDispose]();
    await pods?.[Symbol.asyncDispose]();
    await cluster?.[Symbol.asyncDispose]();
    await proxy?.[Symbol.asyncDispose]();
  });

  for (const moment of ["before", "during", "after"] as const)
    it(`killed ${moment} ReopenContainerLog: loses no line, and writes no line to the wrong file`, async () => {
      const before = files();
      const killed = proxy.stopAt(`${moment} ReopenContainerLog`, () => agent.kill("SIGKILL"));
      // A log at its limit: a line that does not parse shows nowhere.
      appendFileSync(join(directory, "0.log"), `${" ".repeat(maxBytes)}\n`);
      await killed;
      assert.ok(files().length > before.length || !files().includes("0.log"), "the log has its rotated name");
      const atKill = written().at(-1) ?? 0;
      await start();
      await cluster.waitFor(
        "the log to be written on",
        () => files().includes("0.log") && /stdout F \d+\n$/.test(readFileSync(join(directory, "0.log"), "utf8")),
      );
      await cluster.waitFor("further lines", () => (written().at(-1) ?? 0) > atKill + 20);
      const lines = written();
      assert.deepEqual(
        lines,
        lines.map((_, at) => at + 1),
      );
      const shown = await cluster.waitFor("graftlet to serve logs", async () => {
        const { code, stdout } = await cluster.kubectl(["logs", "writer", "--tail=1"]);
        return code === 0 && stdout;
      });
      assert.ok(Number(shown) >= (lines.at(-1) ?? 0), "the current file shows");
      assert.ok(files().length <= maxFiles && !files().some((name) => name.endsWith(".tmp")), files().join(" "));
    });
});
