import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Pod } from "../../src/objects.ts";
import { type Lab, startLab } from "../harness/lab.ts";
import { killOnTarget, sandboxProcess } from "../harness/pod-machine.ts";
import { condition, containerId, images, shell, statusOf } from "../harness/pods.ts";
import { particulars } from "../harness/particulars.ts";

let lab: Lab;
before(async () => {
  lab = await startLab("pods");
});
after(() => lab?.[Symbol.asyncDispose]());

const time = (text: string | undefined): number => Date.parse(text ?? "");
const phases = (history: readonly Pod[]): string[] =>
  history.map((pod) => pod.status?.phase ?? "").filter((phase, index, all) => phase !== all[index - 1]);

describe("a pod's life on a node", { concurrency: 6 }, () => {
  test("the scheduler places a Deployment and a Job, which become ready and complete", async () => {
    const { cluster, pods } = lab;
    const template = (spec: object, app: string) => ({
      metadata: { labels: { app } },
      spec: { terminationGracePeriodSeconds: 1, ...spec },
    });
    const sleeper = { name: "main", image: images.busybox, command: ["sleep", "infinity"] };
    await cluster.apply([
      {
        apiVersion: "apps/v1",
        kind: "Deployment",
        metadata: { name: "web" },
        spec: {
          replicas: 2,
          selector: { matchLabels: { app: "web" } },
          template: template({ containers: [sleeper] }, "web"),
        },
      },
      {
        apiVersion: "batch/v1",
        kind: "Job",
        metadata: { name: "sum" },
        spec: {
          template: template(
            { restartPolicy: "Never", containers: [{ ...sleeper, command: ["sh", "-c", "echo $((40 + 2))"] }] },
            "sum",
          ),
        },
      },
    ]);
    await cluster.mustKubectl(["wait", "--for=condition=Complete", "job/sum", "--timeout=60s"], { timeoutMs: 90_000 });
    await cluster.mustKubectl(["rollout", "status", "deployment/web", "--timeout=60s"], { timeoutMs: 90_000 });
    assert.equal(await cluster.mustKubectl(["logs", "job/sum"]), "42\n");
    const { items } = await pods.api.get<{ items: Pod[] }>(
      "/api/v1/namespaces/default/pods?labelSelector=app+in+(web,sum)",
    );
    assert.deepEqual(
      items.map(({ spec }) => spec.nodeName),
      Array(3).fill(cluster.nodeName),
    );
    const summed = items.find(({ metadata }) => metadata.labels?.["app"] === "sum");
    assert.ok(summed);
    assert.equal(summed.status?.phase, "Succeeded");
    assert.deepEqual(
      { ...statusOf(summed)?.state?.terminated, startedAt: "", finishedAt: "", containerID: "" },
      { exitCode: 0, reason: "Completed", startedAt: "", finishedAt: "", containerID: "" },
    );
    assert.match(
      (await pods.event(summed.metadata.name, "Scheduled")).message ?? "",
      new RegExp(`to ${cluster.nodeName}$`),
    );
    await Promise.all(["Pulled", "Created", "Started"].map((reason) => pods.event(summed.metadata.name, reason)));
  });

  test("status shows conditions, addresses, QoS class, start time and container state of a running pod", async () => {
    const { pods, cluster } = lab;
    const resources = { limits: { cpu: "100m", memory: "32Mi" } };
    await Promise.all([
      pods.create("guaranteed", { containers: [{ resources }] }),
      pods.create("burstable", { containers: [{ resources: { requests: { cpu: "10m" } } }] }),
      pods.create("besteffort", {}),
    ]);
    const [pod, burstable, besteffort] = await Promise.all([
      pods.ready("guaranteed"),
      pods.ready("burstable"),
      pods.ready("besteffort"),
    ]);
    assert.deepEqual(
      [pod, burstable, besteffort].map(({ status }) => status?.qosClass),
      ["Guaranteed", "Burstable", "BestEffort"],
    );
    const { status } = pod;
    assert.equal(status?.phase, "Running");
    assert.equal(status.hostIP, cluster.nodeAddress);
    assert.deepEqual(status.hostIPs, [{ ip: cluster.nodeAddress }]);
    assert.match(status.podIP ?? "", /^10\.244\.0\.\d+$/);
    assert.deepEqual(status.podIPs, [{ ip: status.podIP }]);
    assert.ok(time(status.startTime) >= time(pod.metadata.creationTimestamp));
    const conditions = Object.fromEntries(
      (status.conditions ?? []).map((one) => [one.type, [one.status, one.observedGeneration]]),
    );
    const yes = ["True", pod.metadata.generation];
    assert.deepEqual(conditions, {
      PodReadyToStartContainers: yes,
      Initialized: yes,
      Ready: yes,
      ContainersReady: yes,
      PodScheduled: yes,
    });
    const main = statusOf(pod);
    assert.ok(main?.state?.running && time(main.state.running.startedAt) >= time(status.startTime));
    assert.deepEqual(
      {
        ready: main.ready,
        started: main.started,
        restartCount: main.restartCount,
        image: main.image,
        lastState: main.lastState,
      },
      { ready: true, started: true, restartCount: 0, image: images.busybox, lastState: {} },
    );
    assert.match(main.imageID, /^registry\.k8s\.io\/e2e-test-images\/busybox@sha256:[0-9a-f]{64}$/);
    assert.match(
      main.containerID ?? "",
      new RegExp(`^${particulars[lab.cluster.provider].runtimeName}://[0-9a-f]{64}$`),
    );
    assert.deepEqual(main.resources, { limits: resources.limits, requests: resources.limits });
    assert.deepEqual(phases(pods.history("guaranteed")), ["Pending", "Running"]);
  });

  test("init containers run one after another, before the main containers", async () => {
    const { cluster, pods } = lab;
    const volumeMounts = [{ name: "work", mountPath: "/work" }];
    const step = (word: string, until = "true") =>
      shell(`cat /work/log; until ${until}; do sleep 0.2; done; echo ${word} >> /work/log; sleep 2`, {
        name: word,
        volumeMounts,
      });
    await pods.create("ordered", {
      restartPolicy: "Never",
      volumes: [{ name: "work", emptyDir: {} }],
      initContainers: [step("first"), step("second", "test -e /work/go")],
      containers: [shell("cat /work/log", { volumeMounts })],
    });
    const during = await pods.until("ordered", "its second step", (pod) => !!statusOf(pod, "second")?.state?.running);
    await cluster.mustKubectl(["exec", "ordered", "--container=second", "--", "touch", "/work/go"]);
    assert.equal(await pods.outputOf("ordered"), "first\nsecond\n");
    const done = await pods.until("ordered", "to succeed", ({ status }) => status?.phase === "Succeeded");
    const runs = ["first", "second", "main"].map((name) => statusOf(done, name)?.state?.terminated);
    assert.ok(
      time(runs[0]?.finishedAt) <= time(runs[1]?.startedAt) && time(runs[1]?.finishedAt) <= time(runs[2]?.startedAt),
    );
    assert.equal(during.status?.phase, "Pending");
    assert.deepEqual(statusOf(during)?.state, { waiting: { reason: "PodInitializing" } });
    const initialized = condition(during, "Initialized");
    assert.deepEqual(
      [initialized?.status, initialized?.reason, initialized?.message],
      ["False", "ContainersNotInitialized", "containers with incomplete status: [second]"],
    );
    assert.equal(statusOf(during, "first")?.ready, true);
  });

  test("reruns a failing init container; with restart policy Never, the pod fails instead and starts nothing else", async () => {
    const { pods } = lab;
    const volumes = [{ name: "work", emptyDir: {} }];
    const initContainers = [
      shell("test -e /work/again && exit 0; touch /work/again; exit 5", {
        volumeMounts: [{ name: "work", mountPath: "/work" }],
      }),
    ];
    await Promise.all([
      pods.create("init-retried", { volumes, initContainers }),
      pods.create("init-failed", { volumes, initContainers, restartPolicy: "Never" }),
    ]);
    const retried = await pods.ready("init-retried");
    assert.equal(statusOf(retried, "init-0")?.restartCount, 1);
    const failed = await pods.until("init-failed", "to fail", ({ status }) => status?.phase === "Failed");
    assert.equal(statusOf(failed, "init-0")?.state?.terminated?.exitCode, 5);
    assert.equal(statusOf(failed)?.containerID, undefined);
    assert.ok(statusOf(failed)?.state?.waiting);
    assert.deepEqual(condition(failed, "Ready")?.reason, "PodFailed");
  });

  test("restart policies: Always restarts after exit 0, OnFailure after a failure, Never not at all", async () => {
    const { cluster, pods } = lab;
    const marked = {
      volumes: [{ name: "work", emptyDir: {} }],
      containers: [
        shell("test -e /work/again && exit 0; touch /work/again; exit 9", {
          volumeMounts: [{ name: "work", mountPath: "/work" }],
        }),
      ],
    };
    await Promise.all([
      pods.create("always", { restartPolicy: "Always", containers: [shell("exit 0")] }),
      pods.create("onfailure", { restartPolicy: "OnFailure", ...marked }),
      pods.create("never-fails", {
        restartPolicy: "Never",
        containers: [shell("exit 3"), shell("until test -e /tmp/go; do sleep 0.2; done; sleep 2", { name: "good" })],
      }),
      pods.create("never-works", { restartPolicy: "Never", containers: [shell("exit 0")] }),
    ]);
    const always = await pods.until("always", "a restart", (pod) => (statusOf(pod)?.restartCount ?? 0) >= 1);
    assert.partialDeepStrictEqual(statusOf(always)?.lastState?.terminated, { reason: "Completed", exitCode: 0 });
    const onFailure = await pods.until("onfailure", "to succeed", ({ status }) => status?.phase === "Succeeded");
    assert.partialDeepStrictEqual(statusOf(onFailure), {
      restartCount: 1,
      lastState: { terminated: { exitCode: 9 } },
      state: { terminated: { exitCode: 0 } },
    });
    const halfDone = ({ status }: Pod) =>
      status?.phase === "Running" && status.containerStatuses?.map(({ state }) => Object.keys(state ?? {})[0]).join();
    await pods.until("never-fails", "one of two to have ended", (pod) => halfDone(pod) === "running,terminated");
    await cluster.mustKubectl(["exec", "never-fails", "--container=good", "--", "touch", "/tmp/go"]);
    const failed = await pods.until("never-fails", "to fail", ({ status }) => status?.phase === "Failed");
    assert.partialDeepStrictEqual(statusOf(failed), {
      restartCount: 0,
      state: { terminated: { reason: "Error", exitCode: 3 } },
    });
    assert.equal(statusOf(failed, "good")?.state?.terminated?.exitCode, 0);
    const worked = await pods.until("never-works", "to succeed", ({ status }) => status?.phase === "Succeeded");
    assert.equal(statusOf(worked)?.restartCount, 0);
    assert.partialDeepStrictEqual(condition(worked, "Ready"), { status: "False", reason: "PodCompleted" });
    assert.partialDeepStrictEqual(condition(worked, "Initialized"), { status: "True", reason: "PodCompleted" });
    assert.ok(!phases(pods.history("always")).includes("Succeeded"));
  });

  test("restarts a failing container at once, then after 10 s and 20 s, and reports the back-off", async () => {
    const { pods } = lab;
    await pods.create("crashing", { containers: [shell("exit 1")] });
    const waits = (delay: string) => (pod: Pod) =>
      statusOf(pod)?.state?.waiting?.message ===
      `back-off ${delay} restarting failed container=main pod=crashing_default(${pod.metadata.uid})`;
    const first = await pods.until("crashing", "to back off for 10 s", waits("10s"));
    assert.deepEqual(
      [
        statusOf(first)?.state?.waiting?.reason,
        statusOf(first)?.restartCount,
        statusOf(first)?.lastState?.terminated?.exitCode,
        first.status?.phase,
      ],
      ["CrashLoopBackOff", 1, 1, "Running"],
    );
    const second = await pods.until("crashing", "to back off for 20 s", waits("20s"));
    assert.equal(statusOf(second)?.restartCount, 2);
    const [before, after] = [first, second].map((pod) => statusOf(pod)?.lastState?.terminated);
    const pauseMs = time(after?.startedAt) - time(before?.finishedAt);
    assert.ok(
      pauseMs >= 9_000 && pauseMs <= 20_000,
      `10 s, in whole seconds of status, before the second restart: ${pauseMs} ms`,
    );
    await pods.event(
      "crashing",
      "BackOff",
      `Back-off restarting failed container main in pod crashing_default(${second.metadata.uid})`,
    );
  });

  test("replaces only the container whose image changes", async () => {
    const { pods } = lab;
    await pods.create("changed", { containers: [{}, { name: "other" }] });
    const old = await pods.ready("changed");
    await pods.patch("changed", {
      metadata: { labels: { colour: "blue" }, annotations: { note: "new" } },
      spec: { tolerations: [{ key: "a", operator: "Exists" }] },
    });
    await pods.patch("changed", { spec: { containers: [{ name: "main", image: images.agnhost }] } });
    const next = await pods.until(
      "changed",
      "the new image to run",
      (pod) => statusOf(pod)?.image === images.agnhost && condition(pod, "Ready")?.status === "True",
    );
    assert.notEqual(containerId(next), containerId(old));
    assert.equal(statusOf(next)?.restartCount, 1);
    assert.equal(containerId(next, "other"), containerId(old, "other"));
    assert.equal(statusOf(next, "other")?.restartCount, 0);
    assert.deepEqual(next.status?.podIP, old.status?.podIP);
    await pods.event("changed", "Killing", "Container main definition changed, will be restarted");
    assert.equal((await pods.events("changed")).filter(({ reason }) => reason === "Killing").length, 1);
  });

  test("a pod whose sandbox is killed gets a new one, and runs init and main containers again", async () => {
    const { pods } = lab;
    await pods.create("sandboxed", { initContainers: [shell("date")] });
    const old = await pods.ready("sandboxed");
    await killOnTarget(lab.cluster, sandboxProcess(lab.cluster, old.metadata.uid));
    await pods.event("sandboxed", "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.");
    const next = await pods.until(
      "sandboxed",
      "to be Ready in a new sandbox",
      (pod) => condition(pod, "Ready")?.status === "True" && containerId(pod) !== containerId(old),
    );
    assert.equal(statusOf(next)?.restartCount, 1);
    assert.notEqual(containerId(next, "init-0"), containerId(old, "init-0"));
    assert.equal(statusOf(next)?.lastState?.terminated?.containerID, statusOf(old)?.containerID);
    assert.deepEqual(
      (await pods.events("sandboxed")).filter(({ reason }) => reason === "SandboxChanged").map(({ count }) => count),
      [1],
    );
  });
});

/** How many times anybody has asked the API server to change a pod's status. */
async function statusWrites(): Promise<number> {
  const metrics = (await lab.pods.api.text("/metrics")).split("\n");
  const writes = metrics.filter((line) =>
    /^apiserver_request_total\{.*resource="pods".*subresource="status"/.test(line),
  );
  return writes.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(" "))), 0);
}

test("writes nothing and requests nothing for pods at rest", async () => {
  const { pods, cluster } = lab;
  const gone = ["always", "crashing"].map((name) => pods.gone(name));
  await Promise.all(["always", "crashing"].map((name) => pods.remove(name)));
  await Promise.all(gone);
  // The sandboxes of pods that have ended are stopped after that is told, which is told too.
  let before = 0;
  await cluster.waitFor(
    "two seconds without a write",
    async () => {
      const last = before;
      before = await statusWrites();
      return before > 0 && before === last;
    },
    { everyMs: 2000 },
  );
  // Each change of an annotation makes graftlet look at the pod anew.
  for (const note of ["one", "two", "three"]) await pods.patch("guaranteed", { metadata: { annotations: { note } } });
  const touched = await pods.until(
    "guaranteed",
    "its last note",
    ({ metadata }) => metadata.annotations?.note === "three",
  );
  const since = performance.now();
  await cluster.waitFor("15 s without an event", () => performance.now() - since > 15_000);
  assert.equal(await statusWrites(), before);
  const now = await pods.api.get<Pod>("/api/v1/namespaces/default/pods/guaranteed");
  assert.equal(now.metadata.resourceVersion, touched.metadata.resourceVersion);
  assert.ok(pods.history("guaranteed").length <= 9, "one version for each change");
});
