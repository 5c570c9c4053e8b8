import assert from "node:assert/strict";
import { existsSync, readFileSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { Node, Pod } from "../../src/objects.ts";
import { type Agent, startGraftlet } from "../harness/agent.ts";
import { type Lab, startLab } from "../harness/lab.ts";
import { containerId, firstProcess, shell, type SpecDraft } from "../harness/pods.ts";

/** 30 ranges of IDs: more pods than that must reuse some. */
const idsPerPod = 2 ** 27;
const ranges = 2 ** 32 / idsPerPod - 2;
const config = { maxPods: 25, userNamespaces: { idsPerPod } };
const sleeps = shell("trap 'exit 0' TERM; sleep infinity & wait");
const untilEnded = "until [ -e /tmp/end ]; do sleep 0.2; done";

describe("user namespaces", { timeout: 900_000 }, () => {
  let lab: Lab;
  let restarted: Agent | undefined;

  const namespaced = (spec: SpecDraft = {}): SpecDraft => ({ hostUsers: false, containers: [sleeps], ...spec });
  /** The first ID on the target of a pod's range, as the kernel has it. */
  const firstIdOf = (pod: Pod): number => {
    const maps = ["uid_map", "gid_map"].map((name) =>
      readFileSync(`/proc/${firstProcess(lab.cluster, pod)}/${name}`, "utf8")
        .trim()
        .split(/\s+/)
        .map(Number),
    );
    const [[inside, first = 0, length] = [], groups] = maps;
    assert.deepEqual([inside, length, groups], [0, idsPerPod, maps[0]]);
    return first;
  };
  const podDirectory = (uid: string) => join(lab.cluster.layout.kubeletRoot, "pods", uid);
  const exec = async (name: string, ...command: readonly string[]) => {
    const { code, stdout, stderr } = await lab.cluster.kubectl(["exec", name, "--", ...command]);
    assert.equal(code, 0, stderr);
    return stdout;
  };
  const end = async (...names: readonly string[]) => {
    const gone = names.map((name) => lab.pods.gone(name));
    await Promise.all(names.map((name) => lab.pods.remove(name)));
    await Promise.all(gone);
  };

  before(async () => {
    lab = await startLab("user-namespaces", { config });
  });
  after(async () => {
    await restarted?.[Symbol.asyncDispose]();
    await lab?.[Symbol.asyncDispose]();
  });

  test("reports on the node that the runtime's handlers support user namespaces", async () => {
    const { status } = (await lab.cluster.get<Node>("node", lab.cluster.nodeName)) ?? {};
    const features = status?.runtimeHandlers?.map((handler) => handler.features?.userNamespaces);
    assert.deepEqual(features, [true, true, true]);
  });

  test("gives each pod its own range, in which root is mapped to no user of the target", async () => {
    const { pods, cluster } = lab;
    await pods.create("one", namespaced());
    await pods.create("two", namespaced({ securityContext: { runAsUser: 1000, runAsGroup: 1000 } }));
    await pods.create("plain", { containers: [sleeps] });
    const [one, two] = [await pods.ready("one"), await pods.ready("two")];
    const [first, second] = [firstIdOf(one), firstIdOf(two)];
    assert.ok(first >= idsPerPod && second >= idsPerPod && first !== second, `${first} and ${second}`);
    const ownerOf = (pod: Pod) => statSync(`/proc/${firstProcess(cluster, pod)}`).uid;
    assert.deepEqual([ownerOf(one), ownerOf(two)], [first, second + 1000]);
    assert.match(await exec("two", "id"), /^uid=1000 gid=1000/);
    const plain = readFileSync(`/proc/${firstProcess(cluster, await pods.ready("plain"))}/uid_map`, "utf8");
    assert.equal(plain, readFileSync("/proc/self/uid_map", "utf8"));
    await end("one", "two", "plain");
  });

  test("shows files of volumes with the owners that they have on the target", async () => {
    const { pods, cluster } = lab;
    await cluster.apply([
      {
        apiVersion: "v1",
        kind: "Secret",
        metadata: { name: "key", namespace: "default" },
        stringData: { key: "open" },
      },
      {
        apiVersion: "v1",
        kind: "ConfigMap",
        metadata: { name: "words", namespace: "default" },
        data: { word: "hello" },
      },
    ]);
    const names = ["secret", "config", "projected", "disk", "memory"];
    await pods.create(
      "volumes",
      namespaced({
        securityContext: { fsGroup: 3000 },
        volumes: [
          { name: "secret", secret: { secretName: "key", defaultMode: 0o440 } },
          { name: "config", configMap: { name: "words" } },
          { name: "projected", projected: { sources: [{ serviceAccountToken: { path: "token" } }] } },
          { name: "disk", emptyDir: {} },
          { name: "memory", emptyDir: { medium: "Memory" } },
        ],
        containers: [{ ...sleeps, volumeMounts: names.map((name) => ({ name, mountPath: `/${name}` })) }],
      }),
    );
    const pod = await pods.ready("volumes");
    const first = firstIdOf(pod);
    assert.ok(first > 0);
    assert.equal(await exec("volumes", "cat", "/secret/key", "/config/word"), "openhello");
    assert.equal((await exec("volumes", "cat", "/projected/token")).split(".").length, 3);
    await exec("volumes", "touch", "/disk/made", "/memory/made");
    const ofVolumes = ["/secret/key", "/config/word", "/projected/token", "/disk", "/disk/made", "/memory/made"];
    const others = ["/etc/hosts", "/dev/termination-log"];
    const seen = await exec("volumes", "stat", "-L", "-c", "%n %u:%g", ...ofVolumes, ...others);
    assert.deepEqual(seen.trim().split("\n"), [
      ...ofVolumes.map((path) => `${path} 0:3000`),
      ...others.map((path) => `${path} 0:0`),
    ]);
    const made = statSync(join(podDirectory(pod.metadata.uid), "volumes/kubernetes.io~empty-dir/disk/made"));
    assert.deepEqual([made.uid, made.gid], [0, 3000]);
    await end("volumes");
  });

  test("probes, logs, kubectl exec and kubectl cp work", async () => {
    const { pods, cluster } = lab;
    const readinessProbe = { exec: { command: ["cat", "/tmp/ready"] }, periodSeconds: 1 };
    const command = ["sh", "-c", "echo begun; touch /tmp/ready; sleep infinity"];
    await pods.create("used", namespaced({ containers: [{ command, readinessProbe }] }));
    await pods.ready("used");
    await pods.logged("used", "begun\n");
    assert.equal((await cluster.kubectl(["cp", "/etc/debian_version", "used:/tmp/copied"])).code, 0);
    assert.equal(await exec("used", "cat", "/tmp/copied"), readFileSync("/etc/debian_version", "utf8"));
    assert.match(await exec("used", "id"), /^uid=0\(root\)/);
    await end("used");
  });

  test("when there are more pods than ranges, each pod gets a range over time, and no range stays in use", async () => {
    const { pods, cluster } = lab;
    const seen: number[] = [];
    for (const round of ["a", "b"]) {
      const names = Array.from({ length: 20 }, (_, at) => `many-${round}-${at}`);
      for (const name of names) await pods.create(name, namespaced());
      const firsts = [];
      for (const name of names) firsts.push(firstIdOf(await pods.ready(name)));
      assert.equal(new Set(firsts).size, names.length);
      seen.push(...firsts);
      await end(...names);
    }
    assert.ok(seen.length > ranges && seen.every((first) => first >= idsPerPod && first < 2 ** 32));
    const root = join(cluster.layout.kubeletRoot, "pods");
    assert.deepEqual(
      readdirSync(root).filter((uid) => existsSync(join(root, uid, "userns"))),
      [],
    );
  });

  test("counts successful and failed starts", async () => {
    const { pods, cluster } = lab;
    await pods.create("bogus", namespaced({ containers: [{ command: ["bogus"] }] }));
    await pods.event("bogus", "Failed");
    await cluster.waitFor("the failed start to be counted", async () => {
      const { stdout } = await cluster.kubectl(["get", "--raw", `/api/v1/nodes/${cluster.nodeName}/proxy/metrics`]);
      const count = (name: string) => Number(new RegExp(`^${name}(?:{.*})? (\\d+)$`, "m").exec(stdout)?.[1]);
      return (
        count("kubelet_started_user_namespaced_pods_errors_total") > 0 &&
        count("kubelet_started_user_namespaced_pods_total") > ranges
      );
    });
    await end("bogus");
  });

  test("a pod keeps its range across a restart of graftlet, even in containers that start later", async () => {
    const { pods, cluster, agent } = lab;
    await pods.create("kept", namespaced({ containers: [shell(untilEnded)] }));
    const pod = await pods.ready("kept");
    const first = firstIdOf(pod);
    const file = join(podDirectory(pod.metadata.uid), "userns");
    const mapping = [{ hostId: first, containerId: 0, length: idsPerPod }];
    assert.deepEqual(JSON.parse(readFileSync(file, "utf8")), { uidMappings: mapping, gidMappings: mapping });
    await agent.kill("SIGKILL");
    restarted = await startGraftlet(cluster, { config });
    await cluster.waitFor("kubectl exec to work again", async () => {
      const { code } = await cluster.kubectl(["exec", "kept", "--", "touch", "/tmp/end"]);
      return code === 0;
    });
    const again = await pods.until(
      "kept",
      "to have restarted",
      (now) => now.status?.containerStatuses?.[0]?.ready === true && containerId(now) !== containerId(pod),
    );
    assert.equal(firstIdOf(again), first);
    await pods.create("other", namespaced());
    assert.notEqual(firstIdOf(await pods.ready("other")), first);
    await end("kept", "other");
    assert.ok(!existsSync(file));
  });
});
