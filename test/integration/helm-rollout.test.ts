import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { after, before, describe, test } from "node:test";
import { converse } from "../harness/conversation.ts";
import { type HelmLab, release, startHelmLab } from "../harness/helm-lab.ts";
import { networkArgv } from "../harness/namespaces.ts";
import { must } from "../harness/processes.ts";
import { inNamespace, releaseOf } from "./helm/release.ts";

/** Roll-outs of graftlet's Deployment, and processes that compete for the processor meanwhile. */
const rollouts = Number(process.env.ROLLOUTS ?? 3);
const load = Number(process.env.LOAD ?? 4);

/** One use of the kubelet API. */
interface Use {
  readonly verb: string;
  readonly beganAt: number;
  readonly endedAt: number;
  /** Why it failed. */
  readonly error?: string;
}

// What `kubectl rollout status` promises: that the API server reaches the kubelet API of the nodes again.
describe("kubectl while graftlet is rolled out", { timeout: 3_600_000 }, () => {
  let lab: HelmLab;
  before(async () => {
    lab = await startHelmLab("helm-rollout");
    const edge = releaseOf(lab);
    await edge.install();
    await edge.runWorkload();
    await lab.cluster.mustKubectl([
      "wait",
      "--for=condition=KubeletReachable",
      `node/${release.node}`,
      "--timeout=90s",
    ]);
  });
  after(() => lab?.[Symbol.asyncDispose]());

  const verbs: Readonly<Record<string, () => Promise<unknown>>> = {
    exec: () => lab.cluster.mustKubectl(["exec", "deployment/web", "--", "hostname"]),
    logs: () => lab.cluster.mustKubectl(["logs", "job/greeter"]),
    async "port-forward"() {
      await using way = converse(lab.cluster.startKubectl(["port-forward", "deployment/web", "18081:8080"]));
      await way.says("Forwarding from 127.0.0.1", 30_000);
      const asked = [
        "curl",
        "--silent",
        "--show-error",
        "--fail",
        "--max-time",
        "10",
        "http://127.0.0.1:18081/hostname",
      ];
      await must(networkArgv(lab.cluster.layout, asked));
    },
  };

  test(`no request fails after ${rollouts} roll-outs, under the load of ${load} processes`, async (t) => {
    const uses: Use[] = [];
    const stop = new AbortController();
    const once = async (verb: string, ask: () => Promise<unknown>) => {
      const beganAt = performance.now();
      const error = await ask().then(
        () => undefined,
        (failure: unknown) => String(failure).slice(0, 300),
      );
      uses.push({ verb, beganAt, endedAt: performance.now(), ...(error !== undefined && { error }) });
    };
    const using = Object.entries(verbs).map(async ([verb, ask]) => {
      while (!stop.signal.aborted) await once(verb, ask);
    });
    const busy = Array.from({ length: load }, () => spawn("sh", ["-c", "while :; do :; done"], { stdio: "ignore" }));
    const deployment = `deployment/${release.name}-graftlet`;
    const settled: { readonly from: number; readonly to: number }[] = [];
    try {
      for (let round = 0; round < rollouts; round++) {
        await lab.cluster.mustKubectl([inNamespace, "rollout", "restart", deployment]);
        const status = [inNamespace, "rollout", "status", deployment, "--timeout=180s"];
        await lab.cluster.mustKubectl(status, { timeoutMs: 200_000 });
        const from = performance.now();
        await Promise.all(["exec", "logs"].map((verb) => once(verb, verbs[verb] ?? assert.fail())));
        await lab.cluster.waitFor("ten seconds", () => performance.now() - from > 10_000);
        settled.push({ from, to: performance.now() });
      }
    } finally {
      for (const each of busy) each.kill("SIGKILL");
      stop.abort();
      await Promise.all(using);
    }
    for (const verb of Object.keys(verbs)) {
      const own = uses.filter((use) => use.verb === verb).toSorted((a, b) => a.endedAt - b.endedAt);
      const good = own.filter(({ error }) => error === undefined);
      const gaps = good.slice(1).map(({ endedAt }, index) => endedAt - (good[index]?.endedAt ?? endedAt));
      const longest = Math.round(Math.max(0, ...gaps));
      t.diagnostic(`${verb}: ${own.length} requests, ${own.length - good.length} failed; longest gap ${longest} ms`);
    }
    const late = uses.filter(
      ({ error, beganAt, endedAt }) =>
        error !== undefined && settled.some(({ from, to }) => beganAt >= from && endedAt <= to),
    );
    assert.deepEqual(
      late.map(({ verb, error }) => `${verb}: ${error}`),
      [],
    );
    const counted = uses.filter(({ beganAt, endedAt }) =>
      settled.some(({ from, to }) => beganAt >= from && endedAt <= to),
    );
    assert.ok(counted.length >= 2 * rollouts, `${counted.length} requests after the roll-outs`);
  });
});
