import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { Node, Pod } from "../../src/objects.ts";
import { type Agent, startGraftlet } from "../harness/agent.ts";
import { startTestPlugin, type TestPlugin } from "../harness/device-plugin.ts";
import { type Lab, startLab } from "../harness/lab.ts";
import { containerId, type SpecDraft, statusOf } from "../harness/pods.ts";
import { listPodResources, firstWatchedPod } from "../harness/pod-resources.ts";
import { startRegistrar } from "../harness/plugin-socket.ts";
import { clear } from "../harness/pressure.ts";
import { waitFor } from "../harness/wait.ts";

const resource = "test.graftlet.dev/gpu";

describe("device plugins on a node", { timeout: 600_000 }, () => {
  let lab: Lab;
  let plugin: TestPlugin;
  let restarted: Agent | undefined;

  /** A plugin on the machine, once the node has taken it in. */
  const register = async (socket: string): Promise<TestPlugin> => {
    const { layout } = lab.cluster;
    const library = join(layout.dir, "gpu-library");
    writeFileSync(library, "a library\n");
    const made = await waitFor("the node to take the plugin in", async () => {
      const next = await startTestPlugin({
        directory: join(layout.kubeletRoot, "device-plugins"),
        resource,
        devices: ["gpu-0", "gpu-1"],
        socket,
        answer: (ids) => ({
          envs: { GPU: ids.join(",") },
          mounts: [{ containerPath: "/lib/gpu", hostPath: library, readOnly: true }],
          devices: [{ containerPath: "/dev/gpu", hostPath: "/dev/null", permissions: "rw" }],
          annotations: { "test.graftlet.dev/gpu": ids.join(",") },
        }),
      });
      return next.register().then(
        () => next,
        async (error: unknown) => {
          await next[Symbol.asyncDispose]();
          throw error;
        },
      );
    });
    await shows("2/2");
    return made;
  };
  /** Waits until the API server shows these numbers of the resource, healthy and all. */
  const shows = (numbers: string, name = resource): Promise<boolean> =>
    lab.cluster.waitFor(`the node to have ${numbers} devices`, async () => {
      const { status } = (await lab.cluster.get<Node>("node", lab.cluster.nodeName)) ?? {};
      return `${status?.allocatable?.[name]}/${status?.capacity?.[name]}` === numbers;
    });
  const wanting = (count: number, spec: SpecDraft = {}): SpecDraft => ({
    ...spec,
    containers: [
      {
        command: ["sh", "-c", "echo $GPU; cat /lib/gpu; test -c /dev/gpu && echo a device; exec sleep infinity"],
        resources: { limits: { [resource]: String(count) } },
      },
    ],
  });
  const health = (pod: Pod): readonly string[] =>
    (statusOf(pod, "main")?.allocatedResourcesStatus ?? []).flatMap(({ name, resources = [] }) =>
      resources.map((each) => `${name} ${each.resourceID} ${each.health}`),
    );

  before(async () => {
    lab = await startLab("devices", { config: { featureGates: { PodsAPI: true } } });
    plugin = await register("gpu.sock");
  });
  after(async () => {
    await plugin?.[Symbol.asyncDispose]();
    await restarted?.[Symbol.asyncDispose]();
    await lab?.[Symbol.asyncDispose]();
  });

  test("schedules a pod by its devices, and passes their mounts, variables and device files to its container", async () => {
    const { pods } = lab;
    await pods.create("user", wanting(1));
    const pod = await pods.ready("user");
    await pods.logged("user", "gpu-0\na library\na device\n");
    assert.deepEqual(health(pod), [`${resource} gpu-0 Healthy`]);
    await shows("2/2");
  });

  test("lists devices by pod for monitors on the machine", async () => {
    const user = (await listPodResources(lab.cluster.layout)).find(({ name }) => name === "user");
    assert.deepEqual(
      user?.containers.map(({ name, devices }) => [name, devices]),
      [["main", [{ resourceName: resource, deviceIds: ["gpu-0"], topology: undefined }]]],
    );
  });

  test("programs on the machine can watch the node's pods", async () => {
    const watched = await firstWatchedPod(lab.cluster.layout);
    assert.ok(watched.includes("user"), "the pod's name in protobuf");
  });

  test("reports a failed device on the node and its pod, which keeps running", async () => {
    const { pods } = lab;
    const before = containerId(await pods.ready("user"));
    plugin.show(["gpu-0:Unhealthy", "gpu-1"]);
    await shows("1/2");
    const pod = await pods.until(
      "user",
      "to tell of its device",
      (each) => health(each)[0]?.endsWith("Unhealthy") === true,
    );
    assert.equal(containerId(pod), before);
    plugin.show(["gpu-0", "gpu-1"]);
    await shows("2/2");
    await pods.until(
      "user",
      "to tell that its device is back",
      (each) => health(each)[0]?.endsWith(" Healthy") === true,
    );
  });

  test("rejects a bound pod that needs more devices than are available", async () => {
    const { pods, cluster } = lab;
    await pods.create("greedy", wanting(2, { nodeName: cluster.nodeName }));
    const { status } = await pods.until("greedy", "to be refused", (pod) => pod.status?.phase === "Failed");
    assert.equal(status?.reason, "UnexpectedAdmissionError");
    assert.match(
      status?.message ?? "",
      /Allocate failed due to requested number of devices unavailable for test\.graftlet\.dev\/gpu\. Requested: 2, Available: 1, which is unexpected/,
    );
  });

  test("a pod keeps its devices across a restart of graftlet", async () => {
    const { pods, cluster, agent } = lab;
    const before = containerId(await pods.ready("user"));
    await agent.kill("SIGKILL");
    await plugin[Symbol.asyncDispose]();
    restarted = await startGraftlet(cluster);
    await shows("0/0");
    plugin = await register("gpu-again.sock");
    await pods.create("other", wanting(1));
    const other = await pods.ready("other");
    assert.deepEqual(health(other), [`${resource} gpu-1 Healthy`]);
    await pods.logged("other", /^gpu-1\n/);
    const pod = await pods.ready("user");
    assert.equal(containerId(pod), before);
    assert.deepEqual(health(pod), [`${resource} gpu-0 Healthy`]);
  });

  test("releases the devices of a pod that ends", async () => {
    const { pods } = lab;
    const gone = pods.gone("other");
    await pods.remove("other", 0);
    await gone;
    await pods.create("heir", wanting(1));
    await pods.ready("heir");
    await pods.logged("heir", /^gpu-1\n/);
  });

  test("a resource whose plugin died has no healthy devices; pods keep running", async () => {
    plugin.die();
    await shows("0/2");
    const pod = await lab.pods.ready("user");
    assert.equal(pod.status?.phase, "Running");
  });

  test("serves a plugin while its socket exists in plugins_registry, even after a restart", async () => {
    const { pods, cluster } = lab;
    const other = "test.graftlet.dev/nic";
    const { kubeletRoot } = cluster.layout;
    const directory = join(kubeletRoot, "plugins", "nic");
    await using nic = await startTestPlugin({ directory, resource: other, devices: ["nic-0"] });
    const endpoint = join(directory, "test.sock");
    const info = { type: "DevicePlugin", name: other, endpoint, supportedVersions: ["v1beta1"] };
    const registrar = await startRegistrar(join(kubeletRoot, "plugins_registry", "nic-reg.sock"), info);
    await shows("1/1", other);
    assert.deepEqual(registrar.told, [{ pluginRegistered: true, error: "" }]);
    await pods.create("networked", { containers: [{ resources: { limits: { [other]: "1" } } }] });
    await pods.ready("networked");
    assert.ok(nic.calls.includes("Allocate nic-0"));
    assert.equal(await restarted?.stop(), true);
    restarted = await startGraftlet(cluster);
    await waitFor("it to be taken in again", () => registrar.told.length === 2);
    await shows("1/1", other);
    registrar.stop();
    await shows("0/1", other);
    await clear(pods, ["networked"]);
  });
});
