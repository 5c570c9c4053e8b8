import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { type Agent, startGraftlet } from "../harness/agent.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { type Invariants, createInvariants } from "../harness/invariants.ts";
import { particulars } from "../harness/particulars.ts";
import { openPods, type Pods } from "../harness/pods.ts";
import { providerUnderTest } from "../harness/runtime-daemon.ts";
import type { RuntimeProxy } from "../harness/runtime-proxy.ts";
import type { Pod } from "../../src/objects.ts";

const image = "registry.k8s.io/e2e-test-images/busybox:1.37.0-1";

// graftlet is killed at fixed points of what it does. A proxy between it and the runtime makes the points exact.
describe("graftlet killed at fixed points in a pod's life", { timeout: 900_000 }, () => {
  const { moments, startProxy } = particulars[providerUnderTest()];
  let cluster: Cluster;
  let proxy: RuntimeProxy;
  let invariants: Invariants;
  let agent: Agent;
  let pods: Pods;

  const startAgent = async () => {
    agent = await startGraftlet(cluster, {
      args: ["-v=4"],
      runtimeSocket: proxy.socket,
    });
  };
  const killAgent = () => agent.kill("SIGKILL");
  const removed = async (name: string) => {
    const gone = pods.gone(name);
    await pods.remove(name);
    await gone;
  };
  /** Ready, and able to hear that it is to end. */
  const untilStarted = async (name: string) => {
    await pods.ready(name);
    await cluster.waitFor(`${name} to have begun`, async () => (await startsOf(cluster, name)).runs.length === 1);
  };

  before(async () => {
    cluster = await startCluster({ name: "faults-crash" });
    proxy = await startProxy(cluster);
    invariants = createInvariants(cluster);
    await startAgent();
    pods = await openPods(cluster);
    await cluster.apply([
      { apiVersion: "v1", kind: "Secret", metadata: { name: "settings" }, stringData: { key: "value" } },
      podThatCounts(cluster, "bystander"),
    ]);
    await pods.ready("bystander");
  });
  after(async () => {
    await invariants?.[Symbol.asyncDispose]();
    await pods?.[Symbol.asyncDispose]();
    await cluster?.[Symbol.asyncDispose]();
    await proxy?.[Symbol.asyncDispose]();
  });

  for (const moment of moments.start) {
    it(`killed ${moment} while a pod starts: the next process completes the start, once`, async () => {
      const name = moment.replace(" ", "-").toLowerCase();
      const standing = await invariants.standing("bystander");
      const killed = proxy.stopAt(moment, killAgent);
      await cluster.apply(podThatCounts(cluster, name));
      await killed;
      await startAgent();
      await untilStarted(name);
      await invariants.hold(standing);
      assert.deepEqual(await startsOf(cluster, name), { runs: ["started"], restartCount: 0 });
      await removed(name);
      await invariants.hold(standing);
    });
  }

  it("killed between creating and starting an init, sidecar, regular or ephemeral container: each container runs once", async () => {
    const { nodeName, layout } = cluster;
    const signs = (name: string) => join(layout.dir, "runs", name);
    const lines = () => (existsSync(signs("kinds")) ? readFileSync(signs("kinds"), "utf8").trim().split("\n") : []);
    const volumeMounts = [{ name: "runs", mountPath: "/runs" }];
    const container = (name: string, then: string) => ({
      name,
      image,
      volumeMounts,
      command: ["sh", "-c", `echo ${name} >> /runs/kinds; ${then}`],
    });
    const until = (sign: string) => `until test -e /runs/${sign}; do sleep 0.1; done`;
    const stay = "sleep infinity";
    const probe = { exec: { command: ["test", "-e", "/runs/go-main"] }, periodSeconds: 1, failureThreshold: 300 };
    const restartPolicy = "Always";
    const pod = {
      apiVersion: "v1",
      kind: "Pod",
      metadata: { name: "kinds" },
      spec: {
        nodeName,
        restartPolicy: "Never",
        terminationGracePeriodSeconds: 1,
        volumes: [{ name: "runs", hostPath: { path: join(layout.dir, "runs"), type: "DirectoryOrCreate" } }],
        initContainers: [
          container("init", until("go-side")),
          { ...container("side", stay), restartPolicy, startupProbe: probe },
        ],
        containers: [container("main", stay)],
      },
    };
    const debug = { spec: { ephemeralContainers: [{ ...container("debug", stay), targetContainerName: "main" }] } };
    const steps: readonly (readonly [name: string, begin: () => Promise<unknown>])[] = [
      ["init", () => cluster.apply(pod)],
      ["side", async () => writeFileSync(signs("go-side"), "")],
      ["main", async () => writeFileSync(signs("go-main"), "")],
      ["debug", () => pods.api.patch("/api/v1/namespaces/default/pods/kinds/ephemeralcontainers", debug)],
    ];
    const ran: string[] = [];
    for (const [name, begin] of steps) {
      const killed = proxy.stopAt("before StartContainer", killAgent);
      await begin();
      await killed;
      assert.deepEqual(lines(), ran, `${name} has not run yet`);
      await startAgent();
      ran.push(name);
      await cluster.waitFor(`${name} to run`, () => lines().includes(name), { timeoutMs: 60_000 });
    }
    const shown = await pods.until("kinds", "all to be shown", (seen) => {
      const { containerStatuses = [], initContainerStatuses = [], ephemeralContainerStatuses = [] } = seen.status ?? {};
      const states = [...initContainerStatuses.slice(1), ...containerStatuses, ...ephemeralContainerStatuses];
      return states.length === 3 && states.every(({ state }) => state?.running !== undefined);
    });
    assert.deepEqual(lines(), ["init", "side", "main", "debug"], "each once");
    const { containerStatuses = [], initContainerStatuses = [] } = shown.status ?? {};
    assert.deepEqual(
      [...initContainerStatuses, ...containerStatuses].map(({ restartCount }) => restartCount),
      [0, 0, 0],
    );
    await removed("kinds");
  });

  for (const moment of moments.end) {
    it(`killed ${moment} while a pod terminates: the next process completes the termination`, async () => {
      const name = moment.replace(" ", "-").toLowerCase();
      await cluster.apply(podThatCounts(cluster, name));
      await untilStarted(name);
      const standing = await invariants.standing("bystander");
      const killed = proxy.stopAt(moment, killAgent);
      const gone = pods.gone(name);
      await pods.remove(name);
      await killed;
      await startAgent();
      await gone;
      await invariants.hold(standing);
      assert.deepEqual((await startsOf(cluster, name)).runs, ["started", "ended"]);
    });
  }

  it("killed before the deletion of the API object: the next process deletes it", async () => {
    await cluster.apply([podThatCounts(cluster, "kept"), ...noDeletionOf("kept")]);
    await untilStarted("kept");
    const standing = await invariants.standing("bystander");
    // Asked until it binds: a policy takes a moment to be in force.
    await cluster.waitFor("the policy to refuse nodes", async () =>
      /kept for the test/.test(
        (
          await cluster.kubectl([
            "delete",
            "pod",
            "kept",
            "--dry-run=server",
            `--as=system:node:${cluster.nodeName}`,
            "--as-group=system:nodes",
          ])
        ).stderr,
      ),
    );
    const gone = pods.gone("kept");
    await pods.remove("kept");
    await cluster.waitFor("graftlet to try to delete the object", () => /kept for the test/.test(agent.log()));
    await killAgent();
    assert.equal((await cluster.get<Pod>("pod", "kept"))?.status?.phase, "Succeeded");
    await cluster.mustKubectl(["delete", "validatingadmissionpolicybindings,validatingadmissionpolicies", "kept"]);
    await startAgent();
    await gone;
    await invariants.hold(standing);
    assert.deepEqual((await startsOf(cluster, "kept")).runs, ["started", "ended"]);
  });
});

/** A pod with a file on the machine that tells how often its container was started and how often it ended in peace. */
function podThatCounts({ nodeName, layout }: Cluster, name: string): object {
  const command = `trap 'echo ended >> /runs/${name}; exit 0' TERM; echo started >> /runs/${name}; sleep 3600 & wait`;
  const mounts = ["runs", "scratch", "settings"].map((volume) => ({ name: volume, mountPath: `/${volume}` }));
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name, labels: { name } },
    spec: {
      nodeName,
      terminationGracePeriodSeconds: 10,
      containers: [
        { name: "main", image, imagePullPolicy: "Always", command: ["sh", "-c", command], volumeMounts: mounts },
      ],
      volumes: [
        { name: "runs", hostPath: { path: join(layout.dir, "runs"), type: "DirectoryOrCreate" } },
        { name: "scratch", emptyDir: { medium: "Memory" } },
        { name: "settings", secret: { secretName: "settings" } },
      ],
    },
  };
}

async function startsOf(cluster: Cluster, name: string): Promise<{ runs: string[]; restartCount: number | undefined }> {
  const file = join(cluster.layout.dir, "runs", name);
  const pod = await cluster.get<Pod>("pod", name);
  return {
    runs: existsSync(file) ? readFileSync(file, "utf8").trim().split("\n") : [],
    restartCount: pod?.status?.containerStatuses?.[0]?.restartCount,
  };
}

/** Nodes may not delete the pod: the object stays although everything else of it is gone. */
function noDeletionOf(name: string): object[] {
  const api = { apiVersion: "admissionregistration.k8s.io/v1", metadata: { name } };
  return [
    {
      ...api,
      kind: "ValidatingAdmissionPolicy",
      spec: {
        matchConstraints: {
          resourceRules: [{ apiGroups: [""], apiVersions: ["v1"], operations: ["DELETE"], resources: ["pods"] }],
        },
        validations: [
          {
            expression: `!(request.name == "${name}" && "system:nodes" in request.userInfo.groups)`,
            message: `${name} for the test`,
          },
        ],
      },
    },
    { ...api, kind: "ValidatingAdmissionPolicyBinding", spec: { policyName: name, validationActions: ["Deny"] } },
  ];
}
