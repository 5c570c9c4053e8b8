import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { type Agent, startGraftlet } from "../harness/agent.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { converse } from "../harness/conversation.ts";
import { addGvisor, gvisorHandler, sentries } from "../harness/gvisor.ts";
import { containerId, openPods, type Pods, shell, type SpecDraft, statusOf } from "../harness/pods.ts";
import { sandboxHandler } from "../harness/runtime-handlers.ts";

const Mi = 2 ** 20;

/** What is read of a node's statistics. @see https://pkg.go.dev/k8s.io/kubelet/pkg/apis/stats/v1alpha1 */
interface Summary {
  readonly pods: readonly {
    readonly podRef: { readonly name: string };
    readonly cpu?: { readonly usageCoreNanoSeconds?: number };
    readonly memory?: { readonly workingSetBytes?: number; readonly availableBytes?: number };
  }[];
}

// A pod's containers are processes of one program, its kernel, in the pod's own cgroup.
describe("pods of a runtime class that runs them in gVisor", { timeout: 600_000 }, () => {
  let cluster: Cluster;
  let agent: Agent;
  let pods: Pods;

  const create = (name: string, spec: SpecDraft) => pods.create(name, { runtimeClassName: "gvisor", ...spec });
  const exec = async (name: string, ...command: readonly string[]) =>
    (await cluster.mustKubectl(["exec", name, "-c", "main", "--", ...command])).trim();

  before(async () => {
    cluster = await startCluster({ name: "gvisor" });
    await addGvisor(cluster);
    pods = await openPods(cluster);
    agent = await startGraftlet(cluster);
    const overhead = { podFixed: { cpu: "50m", memory: "64Mi" } };
    const metadata = { name: "gvisor" };
    const kind = { apiVersion: "node.k8s.io/v1", kind: "RuntimeClass" };
    await cluster.apply({ ...kind, metadata, handler: gvisorHandler, overhead });
  });
  after(async () => {
    await agent?.[Symbol.asyncDispose]();
    await pods?.[Symbol.asyncDispose]();
    await cluster?.[Symbol.asyncDispose]();
  });

  test("have its kernel, volumes, probes and exit codes; exec, attach and logs reach their containers", async () => {
    const script = "cp /settings/color /disk/written; while true; do echo word; sleep 1; done";
    const settings = { name: "settings" };
    await cluster.apply({ apiVersion: "v1", kind: "ConfigMap", metadata: settings, data: { color: "green" } });
    const written = { exec: { command: ["grep", "green", "/disk/written"] }, periodSeconds: 1 };
    await create("app", {
      volumes: [
        { name: "disk", emptyDir: {} },
        { name: "settings", configMap: settings },
      ],
      containers: [
        shell(script, {
          volumeMounts: ["disk", "settings"].map((name) => ({ name, mountPath: `/${name}` })),
          readinessProbe: written,
          livenessProbe: written,
          resources: { limits: { cpu: "500m", memory: "64Mi" } },
        }),
        shell("exec busybox httpd -f -p 8080 -h /etc", {
          name: "web",
          readinessProbe: { httpGet: { port: 8080, path: "/passwd" }, periodSeconds: 1 },
          resources: { limits: { cpu: "100m", memory: "32Mi" } },
        }),
      ],
    });
    const pod = await pods.ready("app");
    assert.equal(await sandboxHandler(cluster, pod), gvisorHandler);
    assert.match(await exec("app", "dmesg"), /Starting gVisor/);
    assert.equal(await exec("app", "cat", "/disk/written"), "green");
    assert.equal(await exec("app", "wget", "-qO-", "127.0.0.1:8080/hostname"), "app");
    const { code, stdout } = await cluster.kubectl(["exec", "app", "-c", "main", "--", "sh", "-c", "echo out; exit 3"]);
    assert.deepEqual([code, stdout], [3, "out\n"]);
    await pods.logged("app", /word\nword\n/, "container=main");
    await using talk = converse(cluster.startKubectl(["attach", "app", "-c", "main"]));
    await talk.says(/word\nword\n/);
  });

  test("are restarted when they fail, and are OOMKilled beyond the pod's limit", async () => {
    await create("fails", { containers: [shell("exit 7")] });
    const pod = await pods.until("fails", "to be restarted", (one) => (statusOf(one)?.restartCount ?? 0) > 0);
    assert.equal(statusOf(pod)?.lastState?.terminated?.exitCode, 7);
    const resources = { limits: { memory: "64Mi" } };
    await create("grows", { restartPolicy: "Never", containers: [shell("tail /dev/zero", { resources })] });
    const grown = await pods.until("grows", "to be killed", (one) => statusOf(one)?.state?.terminated !== undefined);
    assert.equal(statusOf(grown)?.state?.terminated?.reason, "OOMKilled");
    await Promise.all(["fails", "grows"].map((name) => pods.remove(name)));
  });

  test("have statistics of the pod as a whole, with its limit and the class's overhead", async () => {
    const path = `/api/v1/nodes/${cluster.nodeName}/proxy/stats/summary`;
    const usage = await cluster.waitFor("the pod's statistics", async () => {
      const { pods: all } = JSON.parse(await cluster.mustKubectl(["get", "--raw", path])) as Summary;
      const found = all.find(({ podRef }) => podRef.name === "app");
      return (found?.memory?.workingSetBytes ?? 0) > 0 && (found?.cpu?.usageCoreNanoSeconds ?? 0) > 0 && found;
    });
    const { workingSetBytes = 0, availableBytes = 0 } = usage.memory ?? {};
    assert.ok(workingSetBytes > 5 * Mi, `${workingSetBytes}`);
    assert.equal(workingSetBytes + availableBytes, (64 + 32 + 64) * Mi);
  });

  test("run on while containerd and graftlet are killed and started again, and end with their kernel", async () => {
    const before = await pods.ready("app");
    assert.equal(sentries(cluster).length, 1);
    await agent.kill("SIGKILL");
    await cluster.killRuntime();
    await cluster.startRuntime();
    agent = await startGraftlet(cluster);
    await cluster.waitFor("exec to work again", async () => (await exec("app", "echo", "again")) === "again");
    const now = await pods.ready("app");
    for (const name of ["main", "web"]) {
      assert.equal(containerId(now, name), containerId(before, name));
      assert.equal(statusOf(now, name)?.restartCount, 0);
    }
    const gone = pods.gone("app");
    await pods.remove("app");
    await gone;
    assert.deepEqual(sentries(cluster), []);
  });
});
