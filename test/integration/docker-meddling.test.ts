import assert from "node:assert/strict";
import { existsSync, readdirSync, readlinkSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { after, before, describe, test } from "node:test";
import type { Pod } from "../../src/objects.ts";
import { counted, type DockerLab, removeAll, startDockerLab, startsOf } from "../harness/docker-lab.ts";
import { containerId, images, statusOf } from "../harness/pods.ts";

let lab: DockerLab;
before(async () => {
  lab = await startDockerLab("engine-meddling");
});
after(() => lab?.[Symbol.asyncDispose]());

const deaf = "exec sleep infinity";
const sandboxOf = async (pod: string): Promise<string> => {
  const found = (await containersOf(pod)).filter(
    (one) => one.State === "running" && one.Labels[typeLabel] === "podsandbox",
  );
  assert.equal(found.length, 1, `${pod} has ${found.length} running sandboxes`);
  return found[0]?.Id ?? "";
};
const containersOf = (pod: string) => lab.engine.containers(`io.kubernetes.pod.name=${pod}`);
const typeLabel = "io.kubernetes.docker.type";
/** The pod once its container is another one and runs. */
const replaced = (name: string, before: Pod): Promise<Pod> =>
  lab.pods.until(
    name,
    "to run again",
    (pod) => statusOf(pod)?.state?.running !== undefined && containerId(pod) !== containerId(before),
  );
const runningOf = async (pod: string) =>
  (await containersOf(pod))
    .flatMap(({ State, Names }) => (State === "running" ? (Names[0]?.split("_")[1] ?? "") : []))
    .sort();

describe("changes to the node's containers with the docker command", { timeout: 400_000, concurrency: 4 }, () => {
  const endings: readonly (readonly [how: string, argv: readonly string[]])[] = [
    ["docker rm -f", ["rm", "--force"]],
    ["docker kill", ["kill"]],
    ["docker stop", ["stop", "--time=1"]],
  ];
  for (const [how, argv] of endings) {
    const name = how.replaceAll(/[^a-z]+/g, "-");
    test(`applies the restart policy once after ${how} on a container`, async () => {
      const { cluster, engine, pods } = lab;
      const policies = ["Always", "OnFailure", "Never"] as const;
      const podOf = (policy: string) => `${name}-${policy.toLowerCase()}`;
      await Promise.all(
        policies.map((policy) =>
          pods.create(podOf(policy), counted(cluster, podOf(policy), deaf, { restartPolicy: policy })),
        ),
      );
      const began = await Promise.all(policies.map((policy) => pods.ready(podOf(policy))));
      const sandboxes = await Promise.all(policies.map((policy) => sandboxOf(podOf(policy))));
      await engine.docker([...argv, ...began.map((pod) => containerId(pod))]);

      for (const [index, policy] of (["Always", "OnFailure"] as const).entries()) {
        const before = began[index] ?? assert.fail(policy);
        const main = statusOf(await replaced(podOf(policy), before));
        assert.deepEqual([policy, main?.restartCount, main?.lastState?.terminated?.exitCode], [policy, 1, 137]);
        assert.equal(await sandboxOf(podOf(policy)), sandboxes[index], "the sandbox is the one that was there");
        await pods.ready(podOf(policy));
      }
      const failed = await pods.until(podOf("Never"), "to fail", ({ status }) => status?.phase === "Failed");
      const end = statusOf(failed)?.state?.terminated ?? statusOf(failed)?.lastState?.terminated;
      assert.deepEqual(
        [end?.exitCode, statusOf(failed)?.restartCount ?? 0],
        [137, end?.reason === "ContainerStatusUnknown" ? 1 : 0],
      );
      // Ready says that a container runs, not that its script has begun.
      const starts = () => policies.map((policy) => startsOf(cluster, podOf(policy)));
      await cluster.waitFor("both to have begun again", () =>
        starts().every((times, index) => times >= (index < 2 ? 2 : 1)),
      );
      assert.deepEqual(starts(), [2, 2, 1]);
    });

    test(`creates a new sandbox and starts its containers after ${how} on a sandbox`, async () => {
      const { cluster, engine, pods } = lab;
      const pod = `${name}-sandbox`;
      await pods.create(pod, counted(cluster, pod, deaf));
      const began = await pods.ready(pod);
      const sandbox = await sandboxOf(pod);
      await engine.docker([...argv, sandbox]);
      const main = statusOf(await replaced(pod, began));
      assert.equal(main?.restartCount, 1);
      await pods.ready(pod);
      assert.notEqual(await sandboxOf(pod), sandbox);
      assert.deepEqual(await runningOf(pod), ["POD", "main"]);
      await cluster.waitFor("it to have begun again", () => startsOf(cluster, pod) >= 2);
      assert.equal(startsOf(cluster, pod), 2);
      assert.equal(await cluster.mustKubectl(["exec", pod, "--", "echo", "hi"]), "hi\n");
    });
  }

  test("restarts nothing after docker pause and unpause on a container", async () => {
    const { engine, pods } = lab;
    await pods.create("paused", {});
    const began = await pods.ready("paused");
    await engine.docker(["pause", containerId(began)]);
    await sleep(5000);
    await engine.docker(["unpause", containerId(began)]);
    await sleep(2000);
    const now = await pods.ready("paused");
    assert.deepEqual([containerId(now), statusOf(now)?.restartCount], [containerId(began), 0]);
    assert.equal(await lab.cluster.mustKubectl(["exec", "paused", "--", "echo", "hi"]), "hi\n");
  });
});

test("the node is idle again after all these changes, and removes links to deleted logs within two minutes", async () => {
  const { cluster, invariants } = lab;
  const links = join(cluster.root, "var/log/containers");
  const dead = () =>
    readdirSync(links).filter((name) => !existsSync(join(cluster.root, readlinkSync(join(links, name)))));
  // The kubelet looks for them every minute.
  await cluster.waitFor("no link that leads nowhere", () => dead().length === 0, {
    timeoutMs: 120_000,
    everyMs: 1000,
    explain: () => dead().join("\n"),
  });
  await invariants.hold(new Map());
});

describe("foreign containers on the node's Docker Engine", { timeout: 400_000 }, () => {
  const foreign = (name: string, network: string, ...options: readonly string[]) =>
    lab.engine.docker([
      "run",
      "--detach",
      `--name=${name}`,
      `--network=${network}`,
      ...options,
      images.busybox,
      "sleep",
      "1000000",
    ]);

  test("a foreign container with the name of a pod's container keeps running; the pod's container gets another name and is removed completely", async () => {
    const { cluster, engine, invariants, pods } = lab;
    // Held back from the scheduler, so that its UID, which is in the names, is known before its containers are made.
    const draft = counted(cluster, "namesake", deaf, { schedulingGates: [{ name: "graftlet.dev/test" }] });
    const { uid } = (await pods.create("namesake", draft)).metadata;
    const names = ["POD", "main"].map((container) => `k8s_${container}_namesake_default_${uid}_0`);
    const labels = ["graftlet.dev/node=another", `io.kubernetes.pod.uid=${uid}`, `${typeLabel}=podsandbox`];
    await foreign(names[0] ?? "", "none", ...labels.map((label) => `--label=${label}`));
    await foreign(names[1] ?? "", "none");
    const before = await Promise.all(names.map((name) => engine.inspect(name)));
    await pods.patch("namesake", { spec: { schedulingGates: [{ name: "graftlet.dev/test", $patch: "delete" }] } });
    await pods.ready("namesake");
    const ours = (await engine.containers("graftlet.dev/node=node-1", `io.kubernetes.pod.uid=${uid}`)).flatMap(
      ({ Names }) => Names,
    );
    assert.equal(ours.length, 2, ours.join(" "));
    for (const name of names)
      assert.ok(
        ours.some((own) => new RegExp(`^/${name}_[0-9a-f]{8}$`).test(own)),
        `${name} with a suffix is not among ${ours.join(" ")}`,
      );
    await invariants.hold(await invariants.standing("namesake"));
    const restarting = await pods.ready("namesake");
    await engine.docker(["kill", containerId(restarting)]);
    assert.equal(statusOf(await replaced("namesake", restarting))?.restartCount, 1);
    await removeAll(lab);
    await invariants.hold(new Map());
    assert.deepEqual(await engine.containers("graftlet.dev/node=node-1", `io.kubernetes.pod.uid=${uid}`), []);
    const after = await Promise.all(names.map((name) => engine.inspect(name)));
    assert.deepEqual(
      after.map(({ Id, State }) => [Id, State.Pid, State.Status]),
      before.map(({ Id, State }) => [Id, State.Pid, State.Status]),
    );
    await engine.docker(["rm", "--force", ...names]);
  });

  test("foreign containers, images and networks are left alone", async () => {
    const { engine, pods } = lab;
    await engine.docker(["network", "create", "--subnet=10.99.0.0/24", "others"]);
    await foreign("bystander", "others");
    await foreign("other-node", "none", "--label=graftlet.dev/node=node-2", `--label=${typeLabel}=container`);
    await engine.docker(["create", "--name=never-started", images.busybox]);
    await engine.docker(["tag", images.busybox, "others.test/tool:1"]);
    const isOurs = (name: string) => /^\/?k8s_/.test(name);
    const others = async () => ({
      running: Object.entries(await engine.standing()).filter(([name]) => !isOurs(name)),
      containers: (await engine.containers()).flatMap(({ Names, State }) =>
        Names.some(isOurs) ? [] : [`${Names.join(" ")} ${State}`],
      ),
      images: (await engine.images()).filter((line) => line.includes("others.test/tool:1")),
      networks: (await engine.networks()).map(({ Id, Name }) => `${Name} ${Id}`).sort(),
    });
    const before = await others();
    const churned = Array.from({ length: 8 }, (_, index) => `churned-${index}`);
    await Promise.all(churned.map((name) => pods.create(name, {})));
    await Promise.all(churned.map((name) => pods.ready(name)));
    await removeAll(lab);
    await lab.invariants.hold(new Map());
    assert.deepEqual(await others(), before);
    await engine.docker(["rm", "--force", "bystander", "other-node", "never-started"]);
    await engine.docker(["network", "rm", "others"]);
  });

  test("recreates the node's own network if it was removed while no pod ran", async () => {
    const { engine, pods } = lab;
    await removeAll(lab);
    const own = async () => (await engine.networks()).find(({ Name }) => Name === "graftlet-node-1");
    const before = (await own()) ?? assert.fail("the node has no network");
    await engine.docker(["network", "rm", before.Id]);
    await pods.create("networked", {});
    const pod = await pods.ready("networked");
    const made = (await own()) ?? assert.fail("the node's network was not made again");
    assert.notEqual(made.Id, before.Id);
    assert.deepEqual([made.IPAM.Config?.[0]?.Subnet, made.Labels], [before.IPAM.Config?.[0]?.Subnet, before.Labels]);
    assert.equal(made.Labels["graftlet.dev/node"], "node-1");
    assert.match(pod.status?.podIP ?? "", /^10\.244\.0\.\d+$/);
  });
});
