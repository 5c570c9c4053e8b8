import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { Node } from "../../src/objects.ts";
import { type Lab, startLab } from "../harness/lab.ts";
import { mount } from "../harness/manifests.ts";
import { podMounts } from "../harness/pod-machine.ts";
import { shell, statusOf } from "../harness/pods.ts";
import { volumesLab } from "../harness/volumes.ts";

let lab: Lab;
/** A folder of the machine's in which mounts are shared with whoever asks for it. */
let shared: string;
before(async () => {
  lab = await startLab("volumes", volumesLab);
  shared = join(lab.cluster.layout.dir, "shared");
  for (const name of ["later", "before"]) mkdirSync(join(shared, name), { recursive: true });
  await onMachine("mount", "--bind", shared, shared);
  await onMachine("mount", "--make-shared", shared);
});
after(() => lab?.[Symbol.asyncDispose]());

async function onMachine(...argv: readonly string[]): Promise<void> {
  const { code, stderr } = await lab.cluster.runInside(argv);
  assert.equal(code, 0, stderr);
}

const privileged = { securityContext: { privileged: true } };

describe("mount propagation", { concurrency: 4 }, () => {
  test("Bidirectional propagates a mount only to containers that request it, and ends with the pod", async () => {
    const { cluster, pods } = lab;
    const sees = (mountPropagation: string) =>
      shell("exec sleep infinity", {
        name: mountPropagation.toLowerCase(),
        volumeMounts: [mount("v", { mountPropagation }), mount("m", { mountPropagation })],
      });
    const mounts =
      "mkdir -p /v/in /m/in; for at in /v/in /m/in; do mount -t tmpfs tmpfs $at; touch $at/file; done; exec sleep infinity";
    const mounter = shell(mounts, {
      ...privileged,
      name: "mounter",
      volumeMounts: ["v", "m"].map((name) => mount(name, { mountPropagation: "Bidirectional" })),
    });
    await pods.create("both-ways", {
      volumes: [
        { name: "v", emptyDir: {} },
        { name: "m", emptyDir: { medium: "Memory" } },
      ],
      containers: [sees("HostToContainer"), sees("None"), mounter],
    });
    const pod = await pods.ready("both-ways");
    const files = (container: string) =>
      cluster.mustKubectl(["exec", "both-ways", "-c", container, "--", "sh", "-c", "ls /v/in /m/in"]);
    await cluster.waitFor(
      "the mounts to arrive",
      async () => (await files("hosttocontainer")) === "/m/in:\nfile\n\n/v/in:\nfile\n",
    );
    assert.equal(await files("none"), "/m/in:\n\n/v/in:\n");
    assert.equal(podMounts(cluster, pod).filter((path) => path.endsWith("/in")).length, 2);
    const gone = pods.gone("both-ways");
    await pods.remove("both-ways");
    await gone;
    assert.deepEqual(podMounts(cluster, pod), []);
  });

  test("HostToContainer shows later mounts of the machine, also by subPath; unmounting them in the pod leaves the machine's mounts", async () => {
    const { cluster, pods } = lab;
    await pods.create("later", {
      volumes: [{ name: "host", hostPath: { path: shared } }],
      containers: [
        {
          volumeMounts: [
            mount("host", { mountPropagation: "HostToContainer" }),
            mount("host", { mountPath: "/part", subPath: "later", mountPropagation: "HostToContainer" }),
            mount("host", { mountPath: "/alone" }),
          ],
        },
      ],
    });
    const pod = await pods.ready("later");
    const inside = join(shared, "later/in");
    mkdirSync(inside);
    await onMachine("mount", "-t", "tmpfs", "tmpfs", inside);
    await onMachine("touch", join(inside, "file"));
    const script = "ls /host/later/in /part/in /alone/later/in";
    assert.equal(
      await cluster.mustKubectl(["exec", "later", "--", "sh", "-c", script]),
      "/alone/later/in:\n\n/host/later/in:\nfile\n\n/part/in:\nfile\n",
    );
    const gone = pods.gone("later");
    await pods.remove("later");
    await gone;
    assert.deepEqual(podMounts(cluster, pod), []);
    await onMachine("ls", join(inside, "file"));
    await onMachine("umount", inside);
  });

  test("a hostPath of the machine's root includes all of its mounts", async () => {
    const { pods } = lab;
    const script = `ls -d /host${shared}`;
    const container = shell(script, { volumeMounts: [mount("host")] });
    const output = await pods.output("whole", container, { volumes: [{ name: "host", hostPath: { path: "/" } }] });
    assert.equal(output, `/host${shared}\n`);
  });

  test("mounts recursively read-only if the runtime supports it, and otherwise rejects it with the kubelet's message", async () => {
    const { cluster, pods } = lab;
    const below = join(shared, "before");
    await onMachine("mount", "-t", "tmpfs", "tmpfs", below);
    const node = await pods.api.get<Node>(`/api/v1/nodes/${lab.agent.nodeName}`);
    const features = node.status?.runtimeHandlers?.find(({ name }) => !name)?.features;
    const can = features?.recursiveReadOnlyMounts === true;
    const script = "touch /host/before/file && echo written; exec sleep infinity";
    const readOnly = (mode: string) => ({
      volumes: [{ name: "host", hostPath: { path: shared } }],
      containers: [shell(script, { volumeMounts: [mount("host", { readOnly: true, recursiveReadOnly: mode })] })],
    });
    await pods.create("if-possible", readOnly("IfPossible"));
    const pod = await pods.ready("if-possible");
    assert.equal(
      statusOf(pod)?.volumeMounts?.find(({ name }) => name === "host")?.recursiveReadOnly,
      can ? "Enabled" : "Disabled",
    );
    const said = can ? "touch: /host/before/file: Read-only file system\n" : "written\n";
    await cluster.waitFor("what it says", async () => (await pods.log("if-possible")) === said);
    await pods.create("enabled", readOnly("Enabled"));
    if (can) await pods.ready("enabled");
    else
      await pods.event(
        "enabled",
        "Failed",
        'Error: failed to resolve recursive read-only mode: volume "host" requested recursive read-only mode, but it is not supported by the runtime',
      );
  });
});
