import assert from "node:assert/strict";
import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { type DockerLab, removeAll, startDockerLab, untilReadiness } from "../harness/docker-lab.ts";
import { cdiDirectory, type DraDriver, draDriver, startDraDriver } from "../harness/dra-driver.ts";
import { containerId, type SpecDraft, statusOf } from "../harness/pods.ts";

describe("CDI devices of a Docker Engine", { timeout: 600_000 }, () => {
  let lab: DockerLab;
  let driver: DraDriver;

  /** A container with a device of the claim of its pod, in which `script` runs. */
  const user = (script: string): SpecDraft => ({
    resourceClaims: [{ name: "own", resourceClaimTemplateName: "each" }],
    containers: [{ command: ["sh", "-c", script], resources: { claims: [{ name: "own" }] } }],
  });
  const untilEnded = "until [ -e /tmp/end ]; do sleep 0.2; done";

  before(async () => {
    // A pod that is held is looked at again so often.
    lab = await startDockerLab("docker-cdi", { config: { syncFrequency: "2s" } });
    driver = await startDraDriver(lab.cluster);
    const devices = { requests: [{ name: "gpu", exactly: { deviceClassName: draDriver } }] };
    await lab.cluster.apply({
      apiVersion: "resource.k8s.io/v1",
      kind: "ResourceClaimTemplate",
      metadata: { name: "each", namespace: lab.pods.namespace },
      spec: { spec: { devices } },
    });
  });
  after(async () => {
    await driver?.[Symbol.asyncDispose]();
    await lab?.[Symbol.asyncDispose]();
  });

  test("a container has the device node, the environment and the mount of its CDI device", async () => {
    const { pods } = lab;
    await pods.create("user", user(`echo $DRA_gpu; ls /dev/dra-$DRA_gpu; cat /dra/$DRA_gpu; ${untilEnded}`));
    await pods.ready("user");
    await pods.logged("user", /^(dev-\d)\n\/dev\/dra-\1\ndriver of \1\n$/);
    await removeAll(lab);
  });

  test("a container whose CDI spec is gone does not start, for the reason that the engine gives, and starts once it is back", async () => {
    const { pods, cluster } = lab;
    await pods.create("restarting", user(untilEnded));
    const first = containerId(await pods.ready("restarting"));
    const folder = cdiDirectory(cluster.layout);
    const specs = readdirSync(folder).map((name) => join(folder, name));
    const texts = specs.map((file) => readFileSync(file));
    for (const file of specs) rmSync(file);
    await cluster.kubectl(["exec", "restarting", "--", "touch", "/tmp/end"]);
    const unresolvable = /CDI device injection failed: unresolvable CDI devices dra\.graftlet\.dev\/device=/;
    const failed = await pods.until("restarting", "to name the device", (pod) =>
      unresolvable.test(statusOf(pod)?.lastState?.terminated?.message ?? ""),
    );
    assert.equal(statusOf(failed)?.lastState?.terminated?.reason, "ContainerCannotRun");
    await pods.event("restarting", "Failed", unresolvable);
    for (const [index, file] of specs.entries()) writeFileSync(file, texts[index] ?? "");
    assert.notEqual(containerId(await pods.ready("restarting")), first);
    await removeAll(lab);
  });

  test("a pod with a claim waits while the engine's CDI is disabled, with an event that says what to set", async () => {
    const { pods, cluster, engine } = lab;
    await cluster.killRuntime();
    await untilReadiness(cluster, /^False /);
    await engine.start({ cdi: false });
    await untilReadiness(cluster, /^True /);
    await pods.create("held", user(untilEnded));
    await pods.event("held", "UnsupportedField", /CDI is disabled in .* (?:28|29)\..*set "features": \{"cdi": true\}/);
    assert.deepEqual(
      driver.calls().filter((call) => call.includes(" held-")),
      [],
    );
    await cluster.killRuntime();
    await engine.start();
    await pods.ready("held");
    await removeAll(lab);
  });
});
