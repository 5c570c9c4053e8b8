import assert from "node:assert/strict";
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { isDeepStrictEqual } from "node:util";
import type { Node, Pod } from "../../src/objects.ts";
import { type Agent, startGraftlet, startKubelet } from "../harness/agent.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { type Baseline, type Invariants, createInvariants } from "../harness/invariants.ts";
import {
  condition,
  containerId,
  firstProcess,
  images,
  openPods,
  type Pods,
  shell,
  type SpecDraft,
  statusOf,
} from "../harness/pods.ts";
import { processStatus } from "../harness/pod-machine.ts";
import { pullSecret } from "../harness/pull-secret.ts";
import { providerUnderTest } from "../harness/runtime-daemon.ts";
import { must } from "../harness/processes.ts";

const secondsOf = (text: string | undefined): number => Math.floor(Date.parse(text ?? "") / 1000);
const volumeMounts = [{ name: "data", mountPath: "/data" }];
const speak = shell("while sleep 1; do date +%s; done");

/** Pods of varied kinds that run, by name. */
const drafts: Readonly<Record<string, SpecDraft>> = {
  plain: {},
  talks: { containers: [speak] },
  "host-network": { hostNetwork: true, containers: [{ ports: [{ containerPort: 18080 }] }] },
  init: {
    initContainers: [shell("true"), shell("echo second > /data/made", { volumeMounts })],
    containers: [{ volumeMounts }],
    volumes: [{ name: "data", emptyDir: {} }],
  },
  memory: {
    containers: [{ ...shell("echo kept > /data/file; exec sleep infinity"), volumeMounts }],
    volumes: [{ name: "data", emptyDir: { medium: "Memory" } }],
  },
  config: {
    containers: [{ volumeMounts, envFrom: [{ configMapRef: { name: "settings" } }] }],
    volumes: [{ name: "data", configMap: { name: "settings" } }],
  },
  secret: {
    containers: [{ volumeMounts }],
    volumes: [{ name: "data", secret: { secretName: "hidden", defaultMode: 0o400 } }],
  },
  http: {
    containers: [
      {
        image: images.agnhost,
        command: ["/agnhost", "netexec"],
        readinessProbe: {
          httpGet: { path: "/healthz", port: 8080 },
          periodSeconds: 1,
          failureThreshold: 1,
          timeoutSeconds: 20,
        },
      },
    ],
  },
  exec: {
    containers: [
      { readinessProbe: { exec: { command: ["true"] }, periodSeconds: 1, failureThreshold: 1, timeoutSeconds: 20 } },
    ],
  },
  restarted: {
    containers: [{ ...shell("test -e /data/ran && exec sleep infinity; touch /data/ran; exit 1"), volumeMounts }],
    volumes: [{ name: "data", emptyDir: {} }],
  },
  pinned: { containers: [{ resources: { limits: { cpu: "1", memory: "64Mi" } } }] },
  limited: {
    containers: [
      {
        resources: { limits: { cpu: "100m", memory: "32Mi" } },
        securityContext: { runAsUser: 1000, readOnlyRootFilesystem: true },
      },
      { name: "second" },
    ],
    automountServiceAccountToken: false,
  },
};
const names = Object.keys(drafts);
/** Agents with managers of CPUs and memory, whose states each reads from the other's files. */
const config = {
  cpuManagerPolicy: "static",
  memoryManagerPolicy: "Static",
  systemReserved: { cpu: "100m", memory: "156Mi" },
  reservedMemory: [{ numaNode: 0, limits: { memory: "256Mi" } }],
};
/** Pods that run through every change of agents. */
const lasting = [
  "talks",
  "host-network",
  "memory",
  "config",
  "secret",
  "http",
  "exec",
  "restarted",
  "limited",
  "pinned",
  "stays",
  "by-graftlet",
];

const skip = providerUnderTest() !== "cri" && "the kubelet runs pods through CRI alone: there is nothing to take over";

describe("graftlet and the kubelet take over from each other", { timeout: 800_000, skip }, () => {
  let cluster: Cluster;
  let pods: Pods;
  let invariants: Invariants;
  let agent: Agent;
  let nodeUid: string | undefined;

  /** Checks that the pods go on as they were and stayed Ready, whatever happens between. */
  const undisturbed = async (
    which: readonly string[],
    happens: (standing: Baseline) => Promise<void>,
  ): Promise<void> => {
    const standing = await invariants.standing(...which);
    const seen = new Map(which.map((name) => [name, pods.history(name).length]));
    await happens(standing);
    await invariants.hold(standing);
    for (const name of which) {
      const unready = pods
        .history(name)
        .slice(seen.get(name))
        .filter((pod) => condition(pod, "Ready")?.status !== "True");
      assert.deepEqual(
        unready.map(({ status }) => status),
        [],
        `${name} was not Ready for a while`,
      );
    }
    assert.equal((await cluster.get<Node>("node", cluster.nodeName))?.metadata.uid, nodeUid);
  };
  const run = async (name: string, spec: SpecDraft = {}): Promise<Pod> => {
    await pods.create(name, spec);
    return pods.ready(name);
  };
  const leaves = async (...gone: readonly string[]): Promise<void> => {
    await cluster.mustKubectl(["delete", "pod", ...gone, "--timeout=60s"], { timeoutMs: 90_000 });
  };
  /** The pod's output up to now, and that it goes on. */
  const stillTalks = async (): Promise<void> => {
    const said = (await pods.log("talks")).length;
    await cluster.waitFor("the log to go on", async () => (await pods.log("talks")).length > said);
  };
  /** Kills a container from outside; the agent starts it once more. */
  const restarts = async (name: string): Promise<void> => {
    const before = await pods.ready(name);
    await must(["kill", "-9", String(firstProcess(cluster, before))]);
    const now = await pods.until(
      name,
      "to run again",
      (pod) => statusOf(pod)?.state?.running !== undefined && containerId(pod) !== containerId(before),
    );
    assert.equal(statusOf(now)?.restartCount, (statusOf(before)?.restartCount ?? 0) + 1);
    assert.deepEqual(
      [statusOf(now)?.lastState?.terminated?.exitCode, statusOf(now)?.lastState?.terminated?.containerID],
      [137, statusOf(before)?.containerID],
    );
  };
  /** Checks that a pod alone has a CPU, which the agent knows. */
  const isPinned = async (): Promise<void> => {
    const process = (pod: Pod) => firstProcess(cluster, pod);
    const cpus = processStatus(cluster, process(await pods.ready("pinned")), "Cpus_allowed_list");
    assert.equal(cpus, "1");
    const others = processStatus(cluster, process(await pods.ready("limited")), "Cpus_allowed_list");
    assert.doesNotMatch(others, /1/);
    for (const file of ["cpu_manager_state", "memory_manager_state"]) {
      const state: { readonly entries: object } = JSON.parse(readFileSync(join(agent.rootDir, file), "utf8"));
      assert.deepEqual(Object.keys(state.entries), [(await pods.ready("pinned")).metadata.uid], file);
    }
  };
  /** A pod that runs the image of the registry that asks for credentials. */
  const ofPrivate = (secret: string, imagePullPolicy: string): SpecDraft => ({
    imagePullSecrets: [{ name: secret }],
    containers: [{ image: cluster.privateImage, imagePullPolicy }],
  });
  /** Checks who may use the private image that is on the node: pods with the credentials that it was pulled with. */
  const staysPrivate = async (agentName: string, secret: string): Promise<void> => {
    await pods.create(`stranger-to-${agentName}`, ofPrivate("wrong", "Never"));
    await pods.until(
      `stranger-to-${agentName}`,
      "to be refused",
      (pod) => statusOf(pod)?.state?.waiting?.reason === "ErrImageNeverPull",
    );
    await run(`private-by-${agentName}`, ofPrivate(secret, "Never"));
  };
  /** Features that the node declares. */
  const declared = async (): Promise<readonly string[]> =>
    (await cluster.get<Node>("node", cluster.nodeName))?.status?.declaredFeatures ?? [];
  const switchTo = async (next: () => Promise<Agent>): Promise<void> => {
    assert.ok(await agent.stop(), "the agent ended by itself");
    agent = await next();
  };
  /** What graftlet says when it may not run here, and its exit code. @param change its arguments, from those it runs with. */
  const refusal = async (argv: readonly string[]) => {
    const { code, stderr, stdout } = await cluster.runInside(argv, { timeoutMs: 60_000 });
    return { code, said: `${stdout}${stderr}`.split("\n").filter((line) => line !== "" && !line.startsWith("{")) };
  };

  before(async () => {
    cluster = await startCluster({ name: "takeover" });
    invariants = createInvariants(cluster);
    agent = await startKubelet(cluster, { config });
    pods = await openPods(cluster);
    await cluster.apply([
      { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "settings" }, data: { COLOUR: "blue" } },
      { apiVersion: "v1", kind: "Secret", metadata: { name: "hidden" }, stringData: { key: "word" } },
      pullSecret(cluster, "login"),
      pullSecret(cluster, "copy"),
      pullSecret(cluster, "wrong", "guess"),
    ]);
    await pods.create("private", ofPrivate("login", "IfNotPresent"));
    await Promise.all(Object.entries(drafts).map(([name, spec]) => pods.create(name, spec)));
    await pods.create("done", { restartPolicy: "Never", containers: [shell("echo done")] });
    await Promise.all(names.map((name) => pods.ready(name)));
    await pods.until("done", "to succeed", ({ status }) => status?.phase === "Succeeded");
    await pods.ready("private");
    nodeUid = (await cluster.get<Node>("node", cluster.nodeName))?.metadata.uid;
  });
  after(async () => {
    await pods?.[Symbol.asyncDispose]();
    await invariants?.[Symbol.asyncDispose]();
    await agent?.[Symbol.asyncDispose]();
    await cluster?.[Symbol.asyncDispose]();
  });

  test("graftlet adopts a kubelet's node, restarts nothing, and every pod stays ready", async () => {
    assert.equal(statusOf(await pods.ready("restarted"))?.restartCount, 1);
    const byKubelet = await declared();
    assert.ok(byKubelet.includes("ExtendWebSocketsToKubelet"), byKubelet.join());
    await undisturbed(
      names.filter((name) => name !== "plain"),
      async () => {
        await switchTo(async () => {
          const status = { declaredFeatures: [...byKubelet, "UserNamespacesHostNetworkSupport"].sort() };
          const patch = JSON.stringify({ status });
          await cluster.mustKubectl(["patch", "node", cluster.nodeName, "--subresource=status", "--patch", patch]);
          return startGraftlet(cluster, { args: ["-v=4"], config });
        });
        await cluster.waitFor("what graftlet does not do to go", async () =>
          isDeepStrictEqual(await declared(), byKubelet),
        );
        await run("by-graftlet", drafts["memory"]);
        await restarts("plain");
        assert.equal(await cluster.mustKubectl(["exec", "memory", "--", "cat", "/data/file"]), "kept\n");
        assert.equal(
          await cluster.mustKubectl(["exec", "config", "--", "sh", "-c", "echo $COLOUR $(cat /data/COLOUR)"]),
          "blue blue\n",
        );
        assert.equal(await cluster.mustKubectl(["exec", "init", "--", "cat", "/data/made"]), "second\n");
        await stillTalks();
        await cluster.mustKubectl(["patch", "secret", "hidden", "--patch", '{"stringData":{"key":"another word"}}']);
        await cluster.waitFor(
          "the Secret's new value in a pod that the kubelet started",
          async () => (await cluster.kubectl(["exec", "secret", "--", "cat", "/data/key"])).stdout === "another word",
        );
        assert.equal((await cluster.get<Pod>("pod", "done"))?.status?.phase, "Succeeded");
        assert.equal(await pods.log("done"), "done\n");
        await isPinned();
      },
    );
  });

  test("an image that the kubelet pulled with a secret is allowed for that secret, and for a copy of it", async () => {
    await staysPrivate("graftlet", "copy");
  });

  test("removes everything that the kubelet started", async () => {
    await run("stays");
    await undisturbed(["stays"], () => leaves("plain", "init", "done"));
  });

  test("a second graftlet with the same root directory or target exits with an error and changes nothing", async () => {
    const argv = readFileSync(`/proc/${agent.pid}/cmdline`, "utf8")
      .split("\0")
      .filter((word) => word !== "");
    await undisturbed(["talks", "stays", "http"], async () => {
      const version = (await cluster.get<Node>("node", cluster.nodeName))?.metadata.resourceVersion;
      const directories = readdirSync(join(agent.rootDir, "pods"));
      const same = await refusal(argv);
      assert.equal(same.code, 1);
      assert.match(
        same.said.join("\n"),
        /^graftlet: node node-1: --root-dir ".*" is in use by another graftlet \(RuntimeInUse\): .+$/,
      );
      const elsewhere = await refusal([...argv, `--root-dir=${join(cluster.layout.dir, "elsewhere")}`]);
      assert.equal(elsewhere.code, 1);
      assert.match(
        elsewhere.said.join("\n"),
        /^graftlet: node node-1: the container runtime in \S+ on the target is in use by another graftlet \(RuntimeInUse\): .+$/,
      );
      assert.deepEqual(readdirSync(join(agent.rootDir, "pods")), directories);
      // Ours writes the node's status every five minutes at the latest; the refused ones must not have hastened it.
      assert.equal((await cluster.get<Node>("node", cluster.nodeName))?.metadata.resourceVersion, version);
    });
  });

  test("SIGTERM stops graftlet at once and leaves the pods; the next start adopts them and reports exits", async () => {
    const [, finishes] = await Promise.all([
      run("crashes"),
      run("finishes", { restartPolicy: "Never", containers: [shell("sleep 6; exit 7")] }),
    ]);
    const ending = firstProcess(cluster, finishes);
    await undisturbed(lasting, async () => {
      const crashing = await pods.ready("crashes");
      const began = performance.now();
      assert.ok(await agent.stop(), "it ended by itself");
      assert.ok(performance.now() - began < 10_000, "it ended within seconds");
      assert.equal((await agent.ended).code, 0);
      const killedAt = Math.floor(Date.now() / 1000);
      await must(["kill", "-9", String(firstProcess(cluster, crashing))]);
      await cluster.waitFor("the other container's end", () => !existsSync(`/proc/${ending}`));
      const before = Math.floor(Date.now() / 1000);
      agent = await startGraftlet(cluster, { args: ["-v=4"], config });
      const again = await pods.until(
        "crashes",
        "to run again",
        (pod) => statusOf(pod)?.state?.running !== undefined && containerId(pod) !== containerId(crashing),
      );
      const { lastState, restartCount } = statusOf(again) ?? {};
      assert.deepEqual([restartCount, lastState?.terminated?.exitCode], [1, 137]);
      assert.ok(
        Math.abs(secondsOf(lastState?.terminated?.finishedAt) - killedAt) <= 4,
        `killed at ${killedAt}, shown as ended at ${lastState?.terminated?.finishedAt}`,
      );
      const finished = await pods.until("finishes", "to have Failed", ({ status }) => status?.phase === "Failed");
      const end = statusOf(finished)?.state?.terminated;
      assert.equal(end?.exitCode, 7);
      assert.ok(
        secondsOf(end?.finishedAt) <= before,
        `it ended before ${before}, shown as ended at ${end?.finishedAt}`,
      );
      await stillTalks();
    });
  });

  test("a kubelet takes over from graftlet in the same way, and graftlet refuses to run at the same time", async () => {
    const argv = readFileSync(`/proc/${agent.pid}/cmdline`, "utf8")
      .split("\0")
      .filter((word) => word !== "");
    await undisturbed(
      lasting.filter((name) => name !== "stays"),
      async () => {
        await switchTo(() => startKubelet(cluster, { config }));
        await isPinned();
        await run("by-kubelet");
        await restarts("stays");
        await staysPrivate("kubelet", "copy");
        await stillTalks();
        assert.equal(await cluster.mustKubectl(["exec", "by-graftlet", "--", "cat", "/data/file"]), "kept\n");
        const refused = await refusal(argv);
        assert.equal(refused.code, 1);
        assert.match(
          refused.said.join("\n"),
          /^graftlet: node node-1: another agent answers on the target's port 10248 \(RuntimeInUse\): .+$/,
        );
      },
    );
    const gone = await Promise.all(
      ["by-graftlet", "memory"].map(async (name) => (await pods.ready(name)).metadata.uid),
    );
    await leaves("by-graftlet", "memory");
    const left = () => readdirSync(join(agent.rootDir, "pods")).filter((uid) => gone.includes(uid));
    await cluster.waitFor("the kubelet to remove what graftlet made for pods", () => left().length === 0);
  });
});
