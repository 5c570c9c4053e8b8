import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { Pod } from "../../src/objects.ts";
import { type Agent, startGraftlet } from "../harness/agent.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { particulars } from "../harness/particulars.ts";
import { openPods, type Pods, shell, statusOf } from "../harness/pods.ts";
import { providerUnderTest } from "../harness/runtime-daemon.ts";
import type { RuntimeProxy } from "../harness/runtime-proxy.ts";

const rounds = 16;
/** How much later graftlet is killed in each round, milliseconds: a start takes one to two tenths of a second. */
const stepMs = 15;
const mayHaveRun = /the agent lost its connection to the runtime while starting the container, which may have run$/;

describe("graftlet killed while the runtime starts a container with restart policy Never", { timeout: 600_000 }, () => {
  const { startProxy } = particulars[providerUnderTest()];
  let cluster: Cluster;
  let proxy: RuntimeProxy;
  let agent: Agent | undefined;
  let pods: Pods;
  let runs: string;

  const start = async () => {
    agent = await startGraftlet(cluster, { args: ["-v=4"], runtimeSocket: proxy.socket, untilReady: false });
  };
  const startsOf = (name: string) =>
    existsSync(join(runs, name)) ? readFileSync(join(runs, name), "utf8").trim().split("\n").length : 0;
  /** A pod whose container of this kind leaves a line at each start; the others leave none. */
  const task = (name: string, kind: "main" | "init") => {
    const counting = {
      command: ["sh", "-c", `echo started >> /runs/${name}`],
      volumeMounts: [{ name: "runs", mountPath: "/runs" }],
    };
    return {
      nodeName: cluster.nodeName,
      restartPolicy: "Never" as const,
      volumes: [{ name: "runs", hostPath: { path: runs } }],
      ...(kind === "init" && { initContainers: [{ name: "init", ...counting }] }),
      containers: [kind === "init" ? shell("exit 0") : counting],
    };
  };

  before(async () => {
    cluster = await startCluster({ name: "start-cut-off" });
    runs = join(cluster.layout.dir, "runs");
    mkdirSync(runs);
    proxy = await startProxy(cluster);
    pods = await openPods(cluster);
    await start();
    // The image is there, and the node is Ready.
    await pods.create("first", task("first", "main"));
    await pods.until("first", "to have ended", ({ status }) => status?.phase === "Succeeded");
  });
  after(async () => {
    await agent?.[Symbol.asyncDispose]();
    await pods?.[Symbol.asyncDispose]();
    await cluster?.[Symbol.asyncDispose]();
    await proxy?.[Symbol.asyncDispose]();
  });

  test("starts each container once; the status reports if the runtime cannot tell whether a container started", async (t) => {
    const names: string[] = [];
    for (let round = 0; round < rounds; round++) {
      const name = `task-${round}`;
      names.push(name);
      const killed = proxy.stopAt("during StartContainer", async () => {
        await new Promise((resolve) => setTimeout(resolve, round * stepMs));
        await agent?.kill("SIGKILL");
      });
      await pods.create(name, task(name, round % 2 === 0 ? "main" : "init"));
      await killed;
      await start();
    }
    const ended = ({ status }: Pod) => status?.phase === "Succeeded" || status?.phase === "Failed";
    let uncertain = 0;
    for (const name of names) {
      const pod = await pods.until(name, "to have ended", ended);
      const starts = startsOf(name);
      const { phase, initContainerStatuses = [] } = pod.status ?? {};
      const failed = [statusOf(pod), ...initContainerStatuses].find((one) => one?.state?.terminated?.exitCode);
      const { message = "" } = failed?.state?.terminated ?? {};
      t.diagnostic(`${name}: ran ${starts} times, ${phase} ${message}`);
      if (phase === "Succeeded") assert.equal(starts, 1, name);
      else {
        assert.match(message, mayHaveRun, name);
        assert.ok(starts <= 1, `${name} ran ${starts} times`);
        uncertain += 1;
      }
    }
    assert.ok(uncertain < rounds, "none was started again");
  });
});
