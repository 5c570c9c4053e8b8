import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { after, before, describe, test } from "node:test";
import { converse } from "../harness/conversation.ts";
import { type HelmLab, release, startHelmLab } from "../harness/helm-lab.ts";
import { networkArgv } from "../harness/namespaces.ts";
import { must } from "../harness/processes.ts";
import { inNamespace, releaseOf } from "./helm/release.ts";

/** Roll-outs of graftlet's Deployment, and processes that compete for the processor meanwhile. */
const rollouts = Number(process.env.ROLLOUTS ?? 2);
const load = Number(process.env.LOAD ?? 2);

/** One use of the kubelet API. */
interface Use {
  readonly verb: string;
  readonly beganAt: number;
  readonly endedAt: number;
  /** Why it failed. */
  readonly error?: string;
}

/** When a roll-out began, when `kubectl rollout status` returned, and until when requests were counted. */
interface Settled {
  readonly began: number;
  readonly from: number;
  readonly to: number;
}

/** Longest time within a span in which no request succeeded, milliseconds. */
function longestGap(uses: readonly Use[], from: number, to: number): number {
  const good = uses.flatMap(({ error, endedAt }) =>
    error === undefined && endedAt > from && endedAt < to ? endedAt : [],
  );
  const times = [from, ...good.toSorted((a, b) => a - b), to];
  return Math.max(...times.slice(1).map((time, index) => time - (times[index] ?? time)));
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

  test(`no request fails during ${rollouts} rollouts under the load of ${load} processes`, async (t) => {
    const uses: Use[] = [];
    const pending = new Set<Promise<void>>();
    const stop = new AbortController();
    const use = async (verb: string, ask: () => Promise<unknown>) => {
      const beganAt = performance.now();
      const error = await ask().then(
        () => undefined,
        (failure: unknown) => String(failure).slice(0, 300),
      );
      uses.push({ verb, beganAt, endedAt: performance.now(), ...(error !== undefined && { error }) });
    };
    const once = (verb: string, ask: () => Promise<unknown>): Promise<void> => {
      const used = use(verb, ask);
      pending.add(used);
      return used.finally(() => pending.delete(used));
    };
    const using = Object.entries(verbs).map(async ([verb, ask]) => {
      while (!stop.signal.aborted) await once(verb, ask);
    });
    const busy = Array.from({ length: load }, () => spawn("sh", ["-c", "while :; do :; done"], { stdio: "ignore" }));
    const deployment = `deployment/${release.name}-graftlet`;
    const settled: Settled[] = [];
    try {
      for (let round = 0; round < rollouts; round++) {
        const began = performance.now();
        await lab.cluster.mustKubectl([inNamespace, "rollout", "restart", deployment]);
        const status = [inNamespace, "rollout", "status", deployment, "--timeout=180s"];
        await lab.cluster.mustKubectl(status, { timeoutMs: 200_000 });
        const from = performance.now();
        await Promise.all(["exec", "logs"].map((verb) => once(verb, verbs[verb] ?? assert.fail())));
        await lab.cluster.waitFor("ten seconds", () => performance.now() - from > 10_000);
        settled.push({ began, from, to: performance.now() });
        // The next roll-out must not end requests that count for this one.
        await Promise.all(pending);
      }
    } finally {
      for (const each of busy) each.kill("SIGKILL");
      stop.abort();
      await Promise.all(using);
    }
    for (const [index, { began, from, to }] of settled.entries()) {
      const gaps = Object.keys(verbs).map((verb) => {
        const seconds =
          longestGap(
            uses.filter((each) => each.verb === verb),
            began,
            to,
          ) / 1000;
        return `${verb} ${seconds.toFixed(1)} s`;
      });
      t.diagnostic(`roll-out ${index + 1}: ${((from - began) / 1000).toFixed(0)} s; longest gap: ${gaps.join(", ")}`);
    }
    const counted = uses.filter(({ beganAt }) => settled.some(({ from, to }) => beganAt >= from && beganAt <= to));
    const late = counted.filter(({ error }) => error !== undefined);
    t.diagnostic(
      `${uses.length} requests, of which ${counted.length} after a roll-out; ${late.length} of those failed`,
    );
    assert.deepEqual(
      late.map(({ verb, error }) => `${verb}: ${error}`),
      [],
    );
    assert.ok(counted.length >= 2 * rollouts, `${counted.length} requests after the roll-outs`);
  });
});
