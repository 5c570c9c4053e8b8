import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { type Agent, hastyRounds, startGraftlet } from "../../harness/agent.ts";
import { type Cluster, startCluster } from "../../harness/cluster.ts";
import { converse } from "../../harness/conversation.ts";
import { commandLine, runDoctor } from "../../harness/graftlet-run.ts";
import { gained } from "../../harness/holdings.ts";
import { imageNames } from "../../harness/image-store.ts";
import { networkArgv } from "../../harness/namespaces.ts";
import {
  assertOutOfMemory,
  condition,
  containerId,
  images,
  openPods,
  type Pods,
  shell,
  statusOf,
} from "../../harness/pods.ts";
import { must } from "../../harness/processes.ts";
import { pullSecret } from "../../harness/pull-secret.ts";
import { targetTraces } from "../../harness/target-traces.ts";
import { addTargetUser } from "../../harness/target-user.ts";
import { providerUnderTest } from "../../harness/runtime-daemon.ts";
import { isGuest } from "../../matrix.ts";
import { machineUnderTest, systems } from "../systems.ts";
import type { ContainerState, Node } from "../../../src/objects.ts";

/** What a program sends that hears all that it is sent, and then says so many bytes and ends. */
const farewellBytes = 200_000;
const server = `while true; do head -c ${farewellBytes} /dev/zero | nc -l -p 9000; done`;

/** What the tour reads of a node's statistics. @see https://pkg.go.dev/k8s.io/kubelet/pkg/apis/stats/v1alpha1 */
interface Summary {
  readonly node: { readonly runtime: { readonly imageFs: { readonly capacityBytes?: number } } };
  readonly pods: readonly (Usage & {
    readonly podRef: { readonly name: string };
    readonly containers: readonly (Usage & { readonly name: string })[];
  })[];
}

interface Usage {
  readonly memory?: { readonly workingSetBytes?: number };
  readonly cpu?: { readonly usageCoreNanoSeconds?: number };
}

// A thin tour of what a node does, for a machine of each system: `GRAFTLET_TEST_SYSTEM`, `GRAFTLET_TEST_SSHD` and `GRAFTLET_TEST_PROVIDER`.
const emulated = isGuest(providerUnderTest());
/** Longest time that a command takes, milliseconds. */
const patienceMs = emulated ? 360_000 : 60_000;
describe("a node on this machine", { timeout: emulated ? 3_300_000 : 600_000 }, () => {
  let cluster: Cluster;
  let agent: Agent;
  let pods: Pods;
  /** What the machine had before the node came. */
  let others: ReadonlySet<string>;
  /** Fields of the ssh provider by which it logs in. */
  const user = emulated ? undefined : systems[machineUnderTest().system].sudoUser;
  const providerConfig = user === undefined ? {} : { user };
  const exec = (args: readonly string[], stdin?: string) =>
    cluster.kubectl(["exec", ...args], { timeoutMs: patienceMs, ...(stdin !== undefined && { stdin }) });

  before(async () => {
    cluster = await startCluster({ name: `tour-${process.env.GRAFTLET_TEST_SYSTEM || "debian-12"}` });
    if (user !== undefined) await addTargetUser(cluster, user, "sudo");
    others = await targetTraces(cluster);
    pods = await openPods(cluster);
    agent = await startGraftlet(cluster, { providerConfig });
  });
  after(async () => {
    await agent?.[Symbol.asyncDispose]();
    await pods?.[Symbol.asyncDispose]();
    await cluster?.[Symbol.asyncDispose]();
  });

  test("is Ready, under no pressure, and has every privilege on the machine", async () => {
    const pressures = ["MemoryPressure", "DiskPressure", "PIDPressure"];
    const statuses = await cluster.waitFor("the node's conditions", async () => {
      const node = await cluster.get<Node>("node", cluster.nodeName);
      const known = new Map((node?.status?.conditions ?? []).map(({ type, status }) => [type, status]));
      return pressures.every((type) => known.has(type)) && known;
    });
    assert.deepEqual(
      ["Ready", "TargetPrivileges", ...pressures].map((type) => statuses.get(type)),
      ["True", "True", ...pressures.map(() => "False")],
    );
  });

  test("runs a pod with probes, limits and two containers that share its network", async () => {
    await pods.create("app", {
      containers: [
        shell("echo hello; mkdir /www; echo served > /www/index.html; exec busybox httpd -f -p 8080 -h /www", {
          name: "web",
          resources: { limits: { memory: "64Mi", cpu: "500m" } },
          startupProbe: { exec: { command: ["test", "-e", "/www/index.html"] }, periodSeconds: 1 },
          readinessProbe: { httpGet: { port: 8080, path: "/index.html" }, periodSeconds: 1 },
          livenessProbe: { tcpSocket: { port: 8080 }, periodSeconds: 1 },
        }),
        shell(server, { name: "end" }),
      ],
    });
    await pods.ready("app");
    assert.equal((await exec(["app", "-c", "end", "--", "wget", "-qO-", "127.0.0.1:8080"])).stdout, "served\n");
  });

  test("restarts a container that fails, and kills one that outgrows its memory", async () => {
    const grows = shell("tail /dev/zero", { resources: { limits: { memory: "32Mi" } } });
    await Promise.all([
      pods.create("fails", { containers: [shell("echo again; exit 7")] }),
      pods.create("grows", { restartPolicy: "Never", containers: [grows] }),
    ]);
    const pod = await pods.until("fails", "to be restarted", (one) => (statusOf(one)?.restartCount ?? 0) > 0);
    assert.equal(statusOf(pod)?.lastState?.terminated?.exitCode, 7);
    assert.equal(await pods.log("fails", "previous=true"), "again\n");
    assertOutOfMemory(
      cluster,
      await pods.until("grows", "to be killed", (one) => statusOf(one)?.state?.terminated !== undefined),
    );
    await Promise.all(["fails", "grows"].map((name) => pods.remove(name)));
  });

  test("kubectl logs shows what a container wrote, and follows it to its end", async () => {
    assert.equal(await cluster.mustKubectl(["logs", "app", "-c", "web"]), "hello\n");
    await pods.create("counts", {
      restartPolicy: "Never",
      containers: [shell("for i in 1 2 3; do echo $i; sleep 1; done")],
    });
    // A pod that has no status yet has no log either.
    const hasStarted = ({ running, terminated }: ContainerState = {}) => (running ?? terminated) !== undefined;
    await pods.until("counts", "to start", (pod) => hasStarted(statusOf(pod)?.state));
    const { code, stdout } = await cluster.kubectl(["logs", "--follow", "counts"], { timeoutMs: patienceMs });
    assert.deepEqual([code, stdout], [0, "1\n2\n3\n"]);
  });

  test("kubectl exec passes streams, exit codes and a terminal", async () => {
    const sent = randomBytes(1 << 20).toString("hex");
    const { code, stdout } = await exec(["-i", "app", "-c", "web", "--", "cat"], sent);
    assert.deepEqual([code, stdout === sent], [0, true]);
    const failed = await exec(["app", "-c", "web", "--", "sh", "-c", "echo out; echo err >&2; exit 3"]);
    assert.deepEqual([failed.code, failed.stdout], [3, "out\n"]);
    assert.match(failed.stderr, /^err\n/);
    for (const round of ["first", "second", "third"])
      assert.equal((await exec(["app", "-c", "web", "--", "echo", round])).stdout, `${round}\n`);
  });

  test("kubectl attach shows what a container writes from then on", async () => {
    await pods.create("talks", { containers: [shell("while true; do echo word; sleep 1; done")] });
    await pods.ready("talks");
    await using talk = converse(cluster.startKubectl(["attach", "talks"]));
    await talk.says(/word\nword\n/);
  });

  test("kubectl cp brings a file there and back", async () => {
    const [sent, received] = ["sent", "received"].map((name) => join(cluster.layout.dir, name)) as [string, string];
    writeFileSync(sent, randomBytes(3 << 20));
    await cluster.mustKubectl(["cp", "-c", "web", sent, "app:/tmp/file"]);
    await cluster.mustKubectl(["cp", "-c", "web", "app:/tmp/file", received]);
    await must(["cmp", sent, received]);
  });

  test("kubectl port-forward passes on requests, answers, and the server's end", async () => {
    await using talk = converse(cluster.startKubectl(["port-forward", "pod/app", ":8080", ":9000"]));
    const shown = /127\.0\.0\.1:(\d+) -> 8080[^]*127\.0\.0\.1:(\d+) -> 9000/;
    await talk.says(shown);
    const [, web, end] = shown.exec(talk.stdout()) ?? [];
    const there = (argv: readonly string[]) => must(networkArgv(cluster.layout, argv), { timeoutMs: 30_000 });
    for (let round = 0; round < 3; round += 1)
      assert.equal(await there(["curl", "--silent", "--max-time", "10", `http://127.0.0.1:${web}/`]), "served\n");
    // It sends nothing, and ends by the server's end alone.
    const received = await there(["sh", "-c", `socat -u TCP:127.0.0.1:${end} - | wc -c`]);
    assert.equal(received.trim(), String(farewellBytes));
  });

  test("mounts volumes, and updates what changes in a configMap", async () => {
    const configMap = (color: string) => ({
      apiVersion: "v1",
      kind: "ConfigMap",
      metadata: { name: "settings" },
      data: { color },
    });
    await cluster.apply(configMap("green"));
    const mounts = ["disk", "memory", "settings"].map((name) => ({ name, mountPath: `/${name}` }));
    const part = { name: "settings", mountPath: "/part", subPath: "color" };
    await pods.create("volumes", {
      volumes: [
        { name: "disk", emptyDir: {} },
        { name: "memory", emptyDir: { medium: "Memory", sizeLimit: "1Mi" } },
        { name: "settings", configMap: { name: "settings" } },
      ],
      containers: [
        shell("cat /settings/color > /disk/written; cp /part /memory/part; exec sleep infinity", {
          volumeMounts: [...mounts, part],
        }),
        shell("exec sleep infinity", { name: "other", volumeMounts: mounts }),
      ],
    });
    await pods.ready("volumes");
    const other = (script: string) => exec(["volumes", "-c", "other", "--", "sh", "-c", script]);
    await cluster.waitFor(
      "the other container to see both files",
      async () => (await other("cat /disk/written /memory/part")).stdout === "greengreen",
    );
    assert.match((await other("grep ' /memory ' /proc/mounts")).stdout, /^tmpfs /);
    await cluster.apply(configMap("blue"));
    await cluster.waitFor("the new value", async () => (await other("cat /settings/color")).stdout === "blue", {
      timeoutMs: 120_000,
    });
  });

  test("pulls with a secret, and says why without one", async () => {
    await cluster.apply(pullSecret(cluster, "registry"));
    const container = { image: cluster.privateImage, imagePullPolicy: "Always" } as const;
    await pods.create("refused", { containers: [container] });
    await pods.event(
      "refused",
      "Failed",
      /credentials|unauthorized|authorization|authentication required|no basic auth/i,
    );
    await pods.create("private", { containers: [container], imagePullSecrets: [{ name: "registry" }] });
    await pods.ready("private");
    await pods.remove("refused");
  });

  test("statistics have the pod's memory and CPU time, and the file system of images", async () => {
    const path = `/api/v1/nodes/${cluster.nodeName}/proxy/stats/summary`;
    const numbers = async () => {
      const { node, pods: known } = JSON.parse(await cluster.mustKubectl(["get", "--raw", path])) as Summary;
      const app = known.find(({ podRef }) => podRef.name === "app");
      return {
        // An engine measures what images use once in a few minutes.
        images: node.runtime.imageFs.capacityBytes,
        memory: app?.memory?.workingSetBytes,
        cpu: app?.cpu?.usageCoreNanoSeconds,
        ...Object.fromEntries((app?.containers ?? []).map(({ name, memory }) => [name, memory?.workingSetBytes])),
      };
    };
    await cluster.waitFor(
      "the statistics of the pod",
      async () => {
        const all = Object.values(await numbers());
        return all.length === 5 && all.every((number) => (number ?? 0) > 0);
      },
      { explain: async () => JSON.stringify(await numbers()) },
    );
  });

  test("graftlet doctor finds no error", async () => {
    const { code, stdout, stderr } = await runDoctor(cluster, agent, patienceMs);
    writeFileSync(join(cluster.layout.logs, "doctor.log"), stdout + stderr);
    assert.equal(code, 0, stdout + stderr);
  });

  test("pods run on while the runtime is killed and started again", async () => {
    const before = await pods.ready("app");
    await cluster.killRuntime();
    await cluster.startRuntime();
    await cluster.waitFor("exec to work again", async () => {
      const { stdout } = await exec(["app", "-c", "web", "--", "echo", "again"]);
      return stdout === "again\n";
    });
    await pods.create("later", { containers: [{}] });
    await pods.ready("later");
    const now = await pods.ready("app");
    assert.equal(containerId(now, "web"), containerId(before, "web"));
    assert.equal(statusOf(now, "web")?.restartCount, 0);
  });

  test("a new graftlet takes over running pods, and removes images that nothing uses", async () => {
    await pods.create("once", { restartPolicy: "Never", containers: [{ image: images.nonroot, command: ["true"] }] });
    await pods.until("once", "to end", (pod) => ["Succeeded", "Failed"].includes(pod.status?.phase ?? ""));
    const gone = pods.gone("once");
    await pods.remove("once");
    await gone;
    assert.ok((await imageNames(cluster)).includes(images.nonroot));
    const before = await pods.ready("app");
    await agent.kill("SIGKILL");
    agent = await startGraftlet(cluster, {
      config: { imageMinimumGCAge: "1s", imageMaximumGCAge: "5s" },
      env: hastyRounds,
      providerConfig,
    });
    await cluster.waitFor("the unused image to go", async () => !(await imageNames(cluster)).includes(images.nonroot), {
      explain: async () => [...(await imageNames(cluster)), ...agent.log().split("\n").slice(-20)].join("\n"),
    });
    assert.ok((await imageNames(cluster)).includes(images.busybox));
    const now = await pods.ready("app");
    for (const name of ["web", "end"]) {
      assert.equal(containerId(now, name), containerId(before, name));
      assert.equal(statusOf(now, name)?.restartCount, 0);
    }
    assert.equal((await exec(["app", "-c", "web", "--", "echo", "still"])).stdout, "still\n");
    assert.equal(condition(now, "Ready")?.lastTransitionTime, condition(before, "Ready")?.lastTransitionTime);
  });

  test("ends pods in time, and graftlet remove leaves the machine as it was", async () => {
    const gone = pods.gone("talks");
    await pods.remove("talks");
    await gone;
    const { program, flags } = commandLine(agent);
    assert.equal(await agent.stop(), true);
    const { code, stdout, stderr } = await cluster.runAtAgent([...program, "remove", ...flags, "--yes"], {
      timeoutMs: 2 * patienceMs,
    });
    assert.equal(code, 0, stdout + stderr);
    assert.deepEqual(gained(others, await targetTraces(cluster)), []);
  });
});
