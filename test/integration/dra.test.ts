import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { after, before, describe, test } from "node:test";
import { type Agent, startGraftlet } from "../harness/agent.ts";
import { type DraDriver, draDriver, startDraDriver } from "../harness/dra-driver.ts";
import { type Lab, startLab } from "../harness/lab.ts";
import { listPodResources } from "../harness/pod-resources.ts";
import { containerId, type SpecDraft, statusOf } from "../harness/pods.ts";

const requests = { devices: { requests: [{ name: "gpu", exactly: { deviceClassName: draDriver } }] } };
const untilEnded = "until [ -e /tmp/end ]; do sleep 0.2; done";
const resource = (kind: string, name: string, spec: object) => ({
  apiVersion: "resource.k8s.io/v1",
  kind,
  metadata: { name, namespace: "default" },
  spec,
});

interface ResourceSlice {
  readonly spec: { readonly devices?: readonly object[] };
}

/** What a container writes of the device that it has. */
const oneDevice = /^dev-\d\na device\n$/;

describe("dynamic resource allocation", { timeout: 600_000 }, () => {
  let lab: Lab;
  let driver: DraDriver;
  let restarted: Agent | undefined;

  const published = (count: number) =>
    lab.cluster.waitFor(`${count} devices to be published`, async () => {
      const { items } = await lab.pods.api.get<{ items: readonly ResourceSlice[] }>(
        "/apis/resource.k8s.io/v1/resourceslices",
      );
      return items.flatMap(({ spec }) => spec.devices ?? []).length === count;
    });
  /** A container that shows the device of its claim. */
  const user = (claim: object, use: { name: string; request?: string } = { name: "own" }): SpecDraft => ({
    resourceClaims: [{ name: "own", ...claim }],
    containers: [
      {
        command: ["sh", "-c", `echo $DRA_gpu; test -c /dev/dra-$DRA_gpu && echo a device; ${untilEnded}`],
        resources: { claims: [use] },
      },
    ],
  });
  const callsOf = (claim: string) => driver.calls().filter((call) => call.endsWith(` ${claim}`));

  before(async () => {
    lab = await startLab("dra");
    driver = await startDraDriver(lab.cluster);
    await published(2);
    await lab.cluster.apply([
      resource("ResourceClaim", "shared", requests),
      resource("ResourceClaimTemplate", "each", { spec: requests }),
    ]);
  });
  after(async () => {
    await driver?.[Symbol.asyncDispose]();
    await restarted?.[Symbol.asyncDispose]();
    await lab?.[Symbol.asyncDispose]();
  });

  test("gives a container the device of its pod's claim, and releases it once the pod has ended", async () => {
    const { pods } = lab;
    await pods.create("templated", user({ resourceClaimTemplateName: "each" }));
    const pod = await pods.ready("templated");
    await pods.logged("templated", oneDevice);
    const claim = pod.status?.resourceClaimStatuses?.[0]?.resourceClaimName ?? "";
    assert.deepEqual(callsOf(claim), [`prepare ${claim}`]);
    await pods.remove("templated");
    await pods.gone("templated");
    assert.deepEqual(callsOf(claim), [`prepare ${claim}`, `unprepare ${claim}`]);
  });

  test("gives a container the device that it requests as a resource, by the name of a device class", async () => {
    const { pods } = lab;
    const limits = { [`deviceclass.resource.kubernetes.io/${draDriver}`]: "1" };
    await pods.create("by-class", {
      containers: [{ command: ["sh", "-c", `ls /dev/dra-*; ${untilEnded}`], resources: { limits } }],
    });
    await pods.ready("by-class");
    await pods.logged("by-class", /^\/dev\/dra-dev-\d\n$/);
    await pods.remove("by-class");
    await pods.gone("by-class");
  });

  test("pods that share a claim keep it until the last of them has ended", async () => {
    const { pods } = lab;
    const sharing = user({ resourceClaimName: "shared" }, { name: "own", request: "gpu" });
    await pods.create("first", sharing);
    await pods.ready("first");
    await pods.create("second", sharing);
    await pods.ready("second");
    const device = await pods.logged("first", oneDevice);
    await pods.logged("second", device);
    await pods.remove("first");
    await pods.gone("first");
    assert.deepEqual(callsOf("shared"), ["prepare shared"]);
    await pods.remove("second");
    await pods.gone("second");
    assert.deepEqual(callsOf("shared"), ["prepare shared", "unprepare shared"]);
  });

  test("shows the health of a pod's devices in its status, and lists the devices for monitors", async () => {
    const { pods, cluster } = lab;
    driver.reportHealth("Healthy", "");
    await pods.create("watched", user({ resourceClaimName: "shared" }));
    const pod = await pods.ready("watched");
    const device = (await pods.logged("watched", oneDevice)).split("\n")[0] ?? "";
    const shown = (health: string, message?: string) =>
      pods.until("watched", `to show ${health}`, (now) =>
        isDeepStrictEqual(
          statusOf(now)?.allocatedResourcesStatus?.map(({ name, resources = [] }) => [
            name,
            resources.map((one) => [one.resourceID.replace(/=.*-dev/, "=dev"), one.health, one.message]),
          ]),
          [["claim:own", [[`${draDriver}/device=${device}`, health, message]]]],
        ),
      );
    await shown("Healthy");
    driver.reportHealth("Unhealthy", "the fan stands still");
    await shown("Unhealthy", "the fan stands still");
    const resources = (await listPodResources(cluster.layout)).find(({ name }) => name === "watched")?.containers;
    const claims = resources?.flatMap(({ dynamicResources }) => dynamicResources) ?? [];
    assert.deepEqual(
      claims.map(({ claimName, claimResources }) => [claimName, claimResources.map((one) => one.deviceName)]),
      [["shared", [device]]],
    );
    assert.equal(claims[0]?.claimResources[0]?.driverName, draDriver);
    driver.reportHealth("Healthy", "");
    assert.equal(containerId(await shown("Healthy")), containerId(pod));
    await pods.remove("watched");
    await pods.gone("watched");
  });

  test("reports a failed preparation, and retries it", async () => {
    const { pods } = lab;
    driver.failWith("the device is on fire");
    await pods.create("failing", user({ resourceClaimTemplateName: "each" }));
    const why =
      /^Failed to prepare dynamic resources: prepare dynamic resources: NodePrepareResources failed for ResourceClaim failing-own-\w+: .*the device is on fire/;
    await pods.event("failing", "FailedPrepareDynamicResources", why);
    driver.failWith(undefined);
    await pods.ready("failing");
    await pods.remove("failing");
    await pods.gone("failing");
  });

  test("withdraws the devices of a driver while it is gone", async () => {
    await driver[Symbol.asyncDispose]();
    await published(0);
    driver = await startDraDriver(lab.cluster);
    await published(2);
  });

  test("keeps prepared claims across a restart, and gives a restarted container its device", async () => {
    const { pods, cluster, agent } = lab;
    const file = join(cluster.layout.kubeletRoot, "dra_manager_state");
    await pods.create("kept", user({ resourceClaimTemplateName: "each" }));
    const before = containerId(await pods.ready("kept"));
    assert.ok(existsSync(file));
    await agent.kill("SIGKILL");
    restarted = await startGraftlet(cluster);
    await cluster.waitFor("kubectl exec to work again", async () => {
      const { code } = await cluster.kubectl(["exec", "kept", "--", "touch", "/tmp/end"]);
      return code === 0;
    });
    await pods.until("kept", "to have restarted", (pod) => containerId(pod) !== before && containerId(pod) !== "");
    await pods.logged("kept", /^dev-\d\na device\n$/);
    await pods.remove("kept");
    await pods.gone("kept");
    assert.equal(driver.calls().at(-1)?.split(" ")[0], "unprepare");
  });
});
