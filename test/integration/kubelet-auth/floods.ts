import assert from "node:assert/strict";
import { once } from "node:events";
import { join } from "node:path";
import { describe, test } from "node:test";
import { forgetPeak, memoryOf } from "../../harness/holdings.ts";
import type { Caller } from "../../harness/kubelet-api.ts";
import type { Lab } from "../../harness/lab.ts";
import type { Callers } from "./callers.ts";

const entry = join(import.meta.dirname, "..", "..", "harness", "kubelet-flood-entry.ts");

/** A flood that others start, and what it last said of itself. */
interface Flood extends AsyncDisposable {
  readonly last: () => Readonly<Record<string, unknown>>;
}

function startFlood({ cluster }: Lab, kind: "tokens" | "heads", argument: string): Flood {
  const child = cluster.spawnInside([process.execPath, entry, kind, cluster.agentAddress, argument]);
  let said = "{}";
  child.stdout?.on("data", (data) => (said = String(data).trim().split("\n").at(-1) ?? said));
  return {
    last: () => JSON.parse(said) as Record<string, unknown>,
    async [Symbol.asyncDispose]() {
      child.kill("SIGKILL");
      if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
    },
  };
}

/** Whoever floods the kubelet API holds up nobody else. */
export function floodTests(lab: () => Lab, callers: () => Callers): void {
  const timed = async (act: () => Promise<unknown>): Promise<number> => {
    const since = performance.now();
    await act();
    return (performance.now() - since) / 1000;
  };
  const execs = async () => {
    const { stdout, stderr } = await lab().cluster.kubectl(["exec", "target", "--", "echo", "still here"]);
    assert.equal(stdout, "still here\n", stderr);
  };

  describe("floods of requests to the kubelet API", () => {
    test("runs pods and accepts a valid token within 2 s during 300 invalid tokens a second", async (t) => {
      const { cluster, pods, agent } = lab();
      const tokens: string[] = [];
      for (let index = 0; index < 6; index++)
        tokens.push((await cluster.mustKubectl(["create", "token", "healthz"])).trim());
      const logged = agent.log().length;
      await using flood = startFlood(lab(), "tokens", tokens[0]?.split(".")[0] ?? "");
      const answered = () => Number(flood.last()["answered"] ?? 0);
      await cluster.waitFor("the flood", () => answered() > 1000, 60_000);
      const asked = (caller: Caller) =>
        timed(async () => assert.deepEqual(await callers().ask("/healthz", caller), { status: 200, body: "ok" }));
      /** How much longer a token takes than a certificate, about which nobody is asked: what this machine makes of a second is its own. */
      const letIn = async () => {
        const took: number[] = [];
        for (const token of tokens) {
          const [byCertificate, byToken] = await Promise.all([asked(callers().admin), asked({ token })]);
          took.push(byToken - byCertificate);
        }
        return took;
      };
      const runs = async () => {
        await pods.create("beside-a-flood", { containers: [{ command: ["sleep", "infinity"] }] });
        await pods.ready("beside-a-flood");
      };
      const [took, pod, exec] = await Promise.all([letIn(), timed(runs), timed(execs)]);
      t.diagnostic(
        `a token took ${took.map((one) => one.toFixed(2)).join(", ")} s longer; a pod after ${pod.toFixed(1)} s`,
      );
      t.diagnostic(`kubectl exec took ${exec.toFixed(1)} s; ${JSON.stringify(flood.last())}`);
      assert.ok(Math.max(...took) < 2, `${took.join(", ")} s longer`);
      assert.ok(pod < 30, `the pod was Ready after ${pod} s`);
      assert.deepEqual(
        Object.keys(flood.last()["statuses"] as object).filter((status) => !["401", "429"].includes(status)),
        [],
      );
      const lines = agent.log().slice(logged).split("\n");
      assert.ok(lines.filter((line) => line.includes("cannot authenticate the caller")).length < 3);
      assert.ok(lines.length < 200, `${lines.length} lines of log`);
      await pods.remove("beside-a-flood");
    });

    test("bounds memory and time of 1000 connections with endless headers, and serves kubectl", async (t) => {
      const { cluster, agent } = lab();
      const before = memoryOf(agent.pid).now;
      forgetPeak(agent.pid);
      await using flood = startFlood(lab(), "heads", "1000");
      const is = (what: string) => Number(flood.last()[what] ?? -1);
      await cluster.waitFor("the flood", () => is("opened") > 300, 60_000);
      const exec = await timed(execs);
      const { token } = callers().account("healthz");
      assert.equal((await callers().ask("/healthz", { token })).status, 200);
      await cluster.waitFor("all connections to have been opened", () => is("opened") === 1000, 60_000);
      const closed = await timed(() => cluster.waitFor("them to be closed", () => is("open") === 0, 30_000));
      const more = memoryOf(agent.pid).peak - before;
      t.diagnostic(`${more.toFixed(0)} MiB more; closed after ${closed.toFixed(1)} s; exec took ${exec.toFixed(1)} s`);
      assert.ok(more < 150, `${more} MiB more`);
      assert.ok(closed < 20, `closed after ${closed} s`);
    });
  });
}
