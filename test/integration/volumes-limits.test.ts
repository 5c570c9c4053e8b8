import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { type Lab, startLab } from "../harness/lab.ts";
import { mount, mounts } from "../harness/manifests.ts";
import { processesOf, volumeFolder } from "../harness/pod-machine.ts";
import { type ContainerDraft, condition, shell, type SpecDraft, statusOf } from "../harness/pods.ts";
import { parseExposition } from "../unit/metrics/exposition.ts";
import { volumesLab } from "../harness/volumes.ts";

let lab: Lab;
before(async () => {
  lab = await startLab("volumes", volumesLab);
});
after(() => lab?.[Symbol.asyncDispose]());

const filling = (path: string, mebibytes: number, more: ContainerDraft = {}): ContainerDraft =>
  shell(`dd if=/dev/zero of=${path} bs=1M count=${mebibytes} 2>/dev/null; exec sleep infinity`, more);
const limit = (quantity: string) => ({ resources: { limits: { "ephemeral-storage": quantity } } });

/** Runs a pod to its eviction, with that message. */
async function evicted(name: string, spec: SpecDraft, message: string): Promise<void> {
  const { pods } = lab;
  await pods.create(name, spec);
  const pod = await pods.until(name, "to be evicted", ({ status }) => status?.phase === "Failed", 120_000);
  assert.deepEqual([pod.status?.reason, pod.status?.message], ["Evicted", message]);
  assert.equal((await pods.event(name, "Evicted", message)).type, "Warning");
  assert.ok(statusOf(pod)?.state?.terminated, "Failed is shown once its containers have ended");
  assert.deepEqual([condition(pod, "Ready")?.status, condition(pod, "Ready")?.reason], ["False", "PodFailed"]);
  assert.deepEqual(processesOf(lab.cluster, pod.metadata.uid), []);
}

describe("limits of local ephemeral storage", { concurrency: 4 }, () => {
  test("evicts a pod whose emptyDir exceeds its sizeLimit, deletes the data, and keeps the API object", async () => {
    const { cluster, pods } = lab;
    const volumes = [
      { name: "small", emptyDir: { sizeLimit: "2Mi" } },
      { name: "large", emptyDir: { sizeLimit: "64Mi" } },
    ];
    const containers = [filling("/small/it", 3, { volumeMounts: mounts(volumes) })];
    const message = 'Usage of EmptyDir volume "small" exceeds the limit "2Mi". ';
    await evicted("outgrown", { volumes, containers }, message);
    const pod = pods.history("outgrown").at(-1) ?? assert.fail();
    const folder = volumeFolder(cluster, pod, "empty-dir", "small");
    await cluster.waitFor("its volumes to be gone", () => !existsSync(folder));
    assert.equal((await pods.until("outgrown", "to stay", () => true)).metadata.deletionTimestamp, undefined);
  });

  test("keeps a pod whose emptyDir is within its limit", async () => {
    const { cluster, pods } = lab;
    const volumes = [{ name: "v", emptyDir: { sizeLimit: "4Mi" } }];
    const quiet = { volumes, containers: [filling("/v/it", 3, { volumeMounts: [mount("v")] })] };
    await pods.create("within", quiet);
    await pods.ready("within");
    // Another pod of the same walk tells that the walk has been made.
    const other = [{ name: "o", emptyDir: { sizeLimit: "1Mi" } }];
    const loud = { volumes: other, containers: [filling("/o/it", 2, { volumeMounts: [mount("o")] })] };
    await evicted("witness", loud, 'Usage of EmptyDir volume "o" exceeds the limit "1Mi". ');
    const pod = pods.history("within").at(-1) ?? assert.fail();
    assert.equal(pod.status?.phase, "Running");
    assert.equal((await cluster.mustKubectl(["exec", "within", "--", "ls", "/v"])).trim(), "it");
  });

  test("evicts a pod if a container's writable layer exceeds its limit", () =>
    evicted(
      "layer",
      { containers: [filling("/it", 12, limit("8Mi")), limit("64Mi")] },
      'Container main exceeded its local ephemeral storage limit "8Mi". ',
    ));

  test("evicts a pod whose containers and volumes together exceed its limit", () =>
    evicted(
      "together",
      {
        restartPolicy: "Never",
        volumes: [{ name: "v", emptyDir: {} }],
        containers: [filling("/v/it", 30, { volumeMounts: [mount("v")], ...limit("8Mi") }), limit("16Mi")],
      },
      "Pod ephemeral local storage usage exceeds the total limit of containers 24Mi. ",
    ));
});

test("counts each eviction by the limit that caused it", async () => {
  const { cluster } = lab;
  const text = await cluster.mustKubectl(["get", "--raw", `/api/v1/nodes/${cluster.nodeName}/proxy/metrics`]);
  const { samples = [] } = parseExposition(text).get("kubelet_evictions") ?? {};
  assert.deepEqual(Object.fromEntries(samples.map(({ labels, value }) => [labels["eviction_signal"], value])), {
    "emptydirfs.limit": 2,
    "ephemeralpodfs.limit": 1,
    "ephemeralcontainerfs.limit": 1,
  });
});
