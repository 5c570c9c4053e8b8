import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { Pod } from "../../src/objects.ts";
import { type Kind, type Promised, cells, kinds } from "../container-kinds.ts";
import { type Agent, startGraftlet } from "../harness/agent.ts";
import { Refused } from "../harness/api.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { startTestPlugin, type TestPlugin } from "../harness/device-plugin.ts";
import { type KindsPod, type KindsPods, killSandbox, kindsPods, stateOf } from "../harness/kinds-pod.ts";
import { configMap } from "../harness/manifests.ts";
import { condition, openPods, type Pods, type SpecDraft } from "../harness/pods.ts";
import { switchOff, switchOn } from "../harness/reboot.ts";

/** How a promise is tested on a real node. */
type Check =
  | { readonly elsewhere: string }
  | {
      /** Runs once, before the first kind. */
      readonly prepare?: () => Promise<void>;
      readonly holds: (kind: Kind) => Promise<void>;
    };

const resource = "test.graftlet.dev/kinds";
const milliCpu: Readonly<Record<Kind, number>> = { init: 210, sidecar: 320, main: 430, ephemeral: 0 };
const mebibytes: Readonly<Record<Kind, number>> = { init: 41, sidecar: 52, main: 63, ephemeral: 0 };
/** Pause between changes of a ConfigMap, milliseconds: several fall into each start. */
const changeMs = 25;
const withoutEphemeral = kinds.filter((kind) => kind !== "ephemeral");
const begin = ["init", "sidecar", "main", "ephemeral"];
const again = ["init", "sidecar", "main"];

describe("promises for each kind of container", { timeout: 900_000 }, () => {
  let cluster: Cluster;
  let agent: Agent | undefined;
  let pods: Pods;
  let of: KindsPods;
  let plugin: TestPlugin | undefined;

  const startAgent = async () => {
    agent = await startGraftlet(cluster);
  };
  const idsOf = (pod: Pod) => kinds.map((kind) => stateOf(pod, kind)?.containerID);
  const newest = (name: string): Pod => pods.history(name).at(-1) ?? assert.fail(`no pod ${name}`);
  const untilStarted = (name: string, expected: readonly string[]) =>
    cluster.waitFor(`the containers of ${name} to start in order`, () => of.starts(name).length >= expected.length, {
      timeoutMs: 120_000,
      explain: async () => of.starts(name).join(),
    });
  const register = () =>
    cluster.waitFor("the node to take the plugin in", async () => {
      const made = await startTestPlugin({
        directory: join(cluster.layout.kubeletRoot, "device-plugins"),
        resource,
        devices: ["d-0", "d-1", "d-2"],
        socket: `kinds-${Date.now()}.sock`,
        answer: (ids) => ({ envs: { GIVEN: ids.join(",") } }),
      });
      return made.register().then(
        () => made,
        async () => {
          await made[Symbol.asyncDispose]();
          return undefined;
        },
      );
    });
  /** Ends the agent and starts it again, with work in between. @returns the pods' containers of before. */
  const around = async (names: readonly string[], work: () => Promise<void>) => {
    const ids = names.map((name) => idsOf(newest(name)));
    await agent?.kill("SIGKILL");
    await work();
    await startAgent();
    return ids;
  };
  let former: Readonly<Record<string, readonly (string | undefined)[]>> = {};
  const untouched = (name: string, kind: Kind) => {
    const at = kinds.indexOf(kind);
    assert.equal(idsOf(newest(name))[at], former[name]?.[at], `${kind} of ${name} is the same container`);
    assert.equal(stateOf(newest(name), kind)?.restartCount, 0);
  };
  /** A pod whose init container waits for a file, so that something of it is under way. */
  const waiting = (name: string): KindsPod => ({
    kinds: withoutEphemeral,
    script: (kind) => (kind === "init" ? `until test -e /runs/${name}-go; do sleep 0.2; done` : ":"),
  });
  /** A restart of something that does not touch running containers. */
  const restartOf = (name: string, work: () => Promise<void>): Check => ({
    async prepare() {
      const held = `${name}-init`;
      await of.create(name);
      await of.create(held, waiting(held));
      await pods.until(held, "its init container to run", (pod) => stateOf(pod, "init")?.state?.running !== undefined);
      const names = [name, held];
      const ids = await around(names, work);
      former = { ...former, ...Object.fromEntries(names.map((each, at) => [each, ids[at] ?? []])) };
      writeFileSync(join(of.runs, `${held}-go`), "");
      await pods.ready(held);
      await pods.ready(name);
    },
    async holds(kind) {
      assert.deepEqual(of.starts(name), begin, "each has started once");
      untouched(name, kind);
      assert.deepEqual(of.starts(`${name}-init`), again, "so has each that was yet to start");
      if (kind === "init") untouched(`${name}-init`, kind);
    },
  });

  const checks: Readonly<Record<Promised, Check>> = {
    "cpu limit": {
      async prepare() {
        await of.create("limits", {
          kinds: withoutEphemeral,
          script: () =>
            "cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null || cut -d' ' -f1 /sys/fs/cgroup/cpu.max /sys/fs/cgroup/memory.max",
          fields: (kind) => ({
            resources: { limits: { cpu: `${milliCpu[kind]}m`, memory: `${mebibytes[kind]}Mi` } },
          }),
        });
        await pods.ready("limits");
      },
      async holds(kind) {
        const [quota] = (await pods.log("limits", `container=${kind}`)).split("\n");
        assert.equal(Number(quota), milliCpu[kind] * 100);
      },
    },
    "memory limit": {
      async holds(kind) {
        const [, bytes] = (await pods.log("limits", `container=${kind}`)).split("\n");
        assert.equal(Number(bytes), mebibytes[kind] * 2 ** 20);
      },
    },
    "ephemeral-storage limit": {
      async prepare() {
        await Promise.all(
          withoutEphemeral.map((writer) =>
            of.create(`storage-${writer}`, {
              kinds: withoutEphemeral,
              script: (kind) => (kind === writer ? "dd if=/dev/zero of=/big bs=1M count=30; sleep 600" : ":"),
              fields: (kind) => ({
                resources: { limits: { "ephemeral-storage": kind === writer ? "10Mi" : "1Gi" } },
              }),
            }),
          ),
        );
      },
      async holds(kind) {
        const ended = await pods.until(
          `storage-${kind}`,
          "to be evicted",
          ({ status }) => status?.phase === "Failed",
          240_000,
        );
        assert.equal(ended.status?.reason, "Evicted");
        const text = `Container ${kind} exceeded its local ephemeral storage limit "10Mi". `;
        assert.equal(ended.status?.message, text);
      },
    },
    "hugepages limit": { elsewhere: "test/integration/guest-limits.test.ts: this machine need not have huge pages" },
    devices: {
      async prepare() {
        plugin = await register();
        await of.create("devices", {
          kinds: withoutEphemeral,
          script: () => "echo $GIVEN",
          fields: () => ({ resources: { limits: { [resource]: "1" } } }),
        });
        await pods.ready("devices");
        const ids = await around(["devices"], async () => plugin?.[Symbol.asyncDispose]());
        former = { ...former, devices: ids[0] ?? [] };
        // The pod has been admitted again by the time that another one runs.
        await of.create("later", { kinds: ["main"] });
        await pods.ready("later");
        plugin = await register();
      },
      async holds(kind) {
        await pods.logged("devices", /^d-\d\n$/, `container=${kind}`);
        assert.equal(newest("devices").status?.phase, "Running");
        untouched("devices", kind);
      },
    },
    "order after a new sandbox": {
      async prepare() {
        await of.create("order");
        await killSandbox(cluster, "order");
        await untilStarted("order", [...begin, ...again]);
        await pods.ready("order");
      },
      async holds(kind) {
        const starts = of.starts("order");
        assert.deepEqual(starts, [...begin, ...again]);
        assert.equal(starts.filter((one) => one === kind).length, kind === "ephemeral" ? 1 : 2);
      },
    },
    "restart of the agent": restartOf("agent", async () => undefined),
    "restart of the runtime": restartOf("runtime", async () => {
      await cluster.killRuntime();
      await cluster.startRuntime();
    }),
    "restart of the machine": {
      async prepare() {
        await of.create("machine");
        await agent?.kill("SIGKILL");
        await switchOff(cluster);
        await switchOn(cluster);
        await startAgent();
        await untilStarted("machine", [...begin, ...again]);
        await pods.ready("machine");
      },
      async holds(kind) {
        assert.deepEqual(of.starts("machine"), [...begin, ...again]);
        assert.equal(stateOf(newest("machine"), kind)?.restartCount, kind === "ephemeral" ? 0 : 1);
      },
    },
    probes: {
      async prepare() {
        const probe = (file: string) => ({
          exec: { command: ["test", "-e", file] },
          periodSeconds: 1,
          failureThreshold: 2,
        });
        await of.create("probes", {
          kinds: withoutEphemeral,
          script: (kind) => (kind === "init" ? ":" : "touch /alive /able"),
          fields: (kind) =>
            kind === "init"
              ? {}
              : {
                  startupProbe: { ...probe("/alive"), failureThreshold: 30 },
                  livenessProbe: probe("/alive"),
                  readinessProbe: probe("/able"),
                },
        });
        await pods.ready("probes");
      },
      async holds(kind) {
        const exec = (...command: string[]) => cluster.mustKubectl(["exec", "probes", "-c", kind, "--", ...command]);
        await exec("rm", "/able");
        await pods.until("probes", `${kind} to be unready`, (pod) => stateOf(pod, kind)?.ready === false);
        await exec("touch", "/able");
        await pods.until("probes", `${kind} to be ready`, (pod) => condition(pod, "Ready")?.status === "True");
        await exec("rm", "/alive");
        await pods.until("probes", `${kind} to be restarted`, (pod) => stateOf(pod, kind)?.restartCount === 1);
        await pods.ready("probes");
      },
    },
    hooks: {
      async prepare() {
        const write = (line: string) => ({ exec: { command: ["sh", "-c", `echo ${line} >> /runs/hooked`] } });
        await of.create("hooks", {
          kinds: withoutEphemeral,
          fields: (kind) =>
            kind === "init"
              ? {}
              : { lifecycle: { postStart: write(`${kind}-begins`), preStop: write(`${kind}-ends`) } },
          spec: { terminationGracePeriodSeconds: 10 },
        });
        await pods.ready("hooks");
        const gone = pods.gone("hooks");
        await pods.remove("hooks");
        await gone;
      },
      async holds(kind) {
        const ran = of.starts("hooked").filter((line) => line.startsWith(kind));
        assert.deepEqual(ran, [`${kind}-begins`, `${kind}-ends`]);
      },
    },
    images: {
      async prepare() {
        for (const lacking of kinds) {
          const fields = (kind: Kind) => (kind === lacking ? { image: "registry.k8s.io/not-there:1" } : {});
          const name = `image-${lacking}`;
          await of.create(name, { kinds: withoutEphemeral, fields });
          if (lacking === "ephemeral") void of.debug(name, { fields }).catch(() => undefined);
        }
      },
      async holds(kind) {
        const name = `image-${kind}`;
        const isLacking = (pod: Pod) =>
          ["ErrImagePull", "ImagePullBackOff"].includes(stateOf(pod, kind)?.state?.waiting?.reason ?? "");
        await pods.until(name, `the image of ${kind} to be missed`, isLacking);
        const before = kind === "ephemeral" ? again : again.slice(0, again.indexOf(kind));
        assert.deepEqual(of.starts(name), before, "those before it have started, those after it wait");
      },
    },
    volumes: {
      async prepare() {
        await cluster.apply([configMap("changing", { f: "race-0" })]);
        const stop = new AbortController();
        const racing = (async () => {
          for (let count = 1; !stop.signal.aborted; count++) {
            await pods.api.patch("/api/v1/namespaces/default/configmaps/changing", { data: { f: `race-${count}` } });
            await new Promise((resolve) => setTimeout(resolve, changeMs));
          }
        })();
        const fields: KindsPod["fields"] = (kind) => ({
          volumeMounts: [
            { name: "changing", mountPath: "/all" },
            ...(kind === "ephemeral" ? [] : [{ name: "changing", mountPath: "/part", subPath: "f" }]),
          ],
        });
        const spec: SpecDraft = {
          restartPolicy: "Never",
          volumes: [{ name: "changing", configMap: { name: "changing" } }],
        };
        const script = (kind: Kind) =>
          kind === "ephemeral" ? "cat /all/f; echo" : "cat /part; echo; cat /all/f; echo";
        const names = Array.from({ length: 8 }, (_, index) => `volumes-${index}`);
        try {
          await Promise.all(names.map((name) => of.create(name, { script, fields, spec })));
        } finally {
          stop.abort();
          await racing;
        }
      },
      async holds(kind) {
        for (let index = 0; index < 8; index++) {
          const log = await pods.log(`volumes-${index}`, `container=${kind}`);
          assert.match(
            log,
            kind === "ephemeral" ? /^race-\d+\n$/ : /^race-\d+\nrace-\d+\n$/,
            `${kind} of pod ${index}`,
          );
        }
      },
    },
  };

  before(async () => {
    cluster = await startCluster({ name: "container-kinds" });
    await startAgent();
    pods = await openPods(cluster);
    of = kindsPods(cluster, pods);
  });
  after(async () => {
    await plugin?.[Symbol.asyncDispose]();
    await pods?.[Symbol.asyncDispose]();
    await agent?.[Symbol.asyncDispose]();
    await cluster?.[Symbol.asyncDispose]();
  });

  const prepared = new Map<Promised, Promise<void>>();
  for (const { kind, promised, absent } of cells) {
    const check = checks[promised];
    if (absent !== undefined || "elsewhere" in check) continue;
    test(`${kind} container keeps the promises for ${promised}`, async () => {
      const ready = prepared.get(promised) ?? check.prepare?.() ?? Promise.resolve();
      prepared.set(promised, ready);
      await ready;
      await check.holds(kind);
    });
  }

  /** Fields by which a container would ask for what its kind has not. */
  const refused: Readonly<Partial<Record<Promised, object>>> = {
    "cpu limit": { resources: { limits: { cpu: "1" } } },
    "memory limit": { resources: { limits: { memory: "1Gi" } } },
    "ephemeral-storage limit": { resources: { limits: { "ephemeral-storage": "1Gi" } } },
    "hugepages limit": { resources: { limits: { "hugepages-2Mi": "2Mi" } } },
    devices: { resources: { limits: { [resource]: "1" } } },
    probes: { livenessProbe: { exec: { command: ["true"] } } },
    hooks: { lifecycle: { preStop: { exec: { command: ["true"] } } } },
  };
  for (const { kind, promised, absent } of cells) {
    if (absent === undefined) continue;
    test(`${kind} container has no ${promised}: ${absent}`, async () => {
      assert.match(absent, /^the API server refuses /);
      const container = { name: "asking", image: "i", ...refused[promised] };
      const path = "/api/v1/namespaces/default/pods";
      const asked =
        kind === "init"
          ? pods.api.create(`${path}?dryRun=All`, {
              apiVersion: "v1",
              kind: "Pod",
              metadata: { name: "asking" },
              spec: { initContainers: [container], containers: [{ name: "main", image: "i" }] },
            })
          : pods.api.patch(`${path}/limits/ephemeralcontainers?dryRun=All`, {
              spec: { ephemeralContainers: [container] },
            });
      await assert.rejects(asked, (error) => error instanceof Refused && error.status === 422);
    });
  }
});
