import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Node } from "../../src/objects.ts";
import { podCgroup } from "../../src/pod/cgroup-path.ts";
import type { QosClass } from "../../src/pod/qos.ts";
import { ownCapabilities } from "../harness/capabilities.ts";
import { type Lab, startLab } from "../harness/lab.ts";
import { cgroupsOf, cgroupValue } from "../harness/pod-machine.ts";
import { particulars } from "../harness/particulars.ts";
import { podCgroupDriver } from "../harness/runtime-daemon.ts";
import { forgetPeak, memoryOf } from "../harness/holdings.ts";
import { type ContainerDraft, firstProcess, images, shell, statusOf, assertOutOfMemory } from "../harness/pods.ts";

let lab: Lab;
before(async () => {
  lab = await startLab("containers");
});
after(() => lab?.[Symbol.asyncDispose]());

/** `NAME=value` lines as an object. */
const variables = (text: string): Record<string, string> =>
  Object.fromEntries(
    text
      .trimEnd()
      .split("\n")
      .map((line) => [line.slice(0, line.indexOf("=")), line.slice(line.indexOf("=") + 1)]),
  );
const printEnv = { command: ["/bin/busybox", "env"] };
const kubernetesService = {
  KUBERNETES_SERVICE_HOST: "10.96.0.1",
  KUBERNETES_SERVICE_PORT: "443",
  KUBERNETES_SERVICE_PORT_HTTPS: "443",
  KUBERNETES_PORT: "tcp://10.96.0.1:443",
  KUBERNETES_PORT_443_TCP: "tcp://10.96.0.1:443",
  KUBERNETES_PORT_443_TCP_PROTO: "tcp",
  KUBERNETES_PORT_443_TCP_PORT: "443",
  KUBERNETES_PORT_443_TCP_ADDR: "10.96.0.1",
};

describe("the environment of a container", { concurrency: 4 }, () => {
  test("a container's environment contains all kinds of configured variables, and no others", async () => {
    const { pods, cluster } = lab;
    await cluster.apply([
      {
        apiVersion: "v1",
        kind: "ConfigMap",
        metadata: { name: "settings" },
        data: { colour: "blue", "log.level": "debug" },
      },
      {
        apiVersion: "v1",
        kind: "Secret",
        metadata: { name: "keys" },
        stringData: { password: "s3cret word", token: "t0ken" },
      },
      {
        apiVersion: "v1",
        kind: "Service",
        metadata: { name: "my-db" },
        spec: { clusterIP: "10.96.5.5", ports: [{ name: "sql", port: 5432 }] },
      },
    ]);
    const field = (name: string, fieldPath: string) => ({ name, valueFrom: { fieldRef: { fieldPath } } });
    const resource = (name: string, of: string, divisor = "0") => ({
      name,
      valueFrom: { resourceFieldRef: { resource: of, divisor } },
    });
    const text = await lab.pods.output(
      "environment",
      {
        ...printEnv,
        resources: { requests: { cpu: "100m", memory: "16Mi" }, limits: { cpu: "250m", memory: "32Mi" } },
        envFrom: [
          { prefix: "CM_", configMapRef: { name: "settings" } },
          { secretRef: { name: "keys" } },
          { configMapRef: { name: "absent", optional: true } },
        ],
        env: [
          { name: "PLAIN", value: "a value" },
          { name: "COMPOSED", value: "$(PLAIN) of $(MY_DB_SERVICE_HOST), $$(PLAIN), $(NOBODY)" },
          { name: "COLOUR", valueFrom: { configMapKeyRef: { name: "settings", key: "colour" } } },
          { name: "PASSWORD", valueFrom: { secretKeyRef: { name: "keys", key: "password" } } },
          { name: "ABSENT", valueFrom: { secretKeyRef: { name: "keys", key: "absent", optional: true } } },
          { name: "MY_DB_PORT", value: "own" },
          field("POD", "metadata.name"),
          field("NAMESPACE", "metadata.namespace"),
          field("UID", "metadata.uid"),
          field("LABEL", "metadata.labels['app']"),
          field("NOTE", "metadata.annotations['note']"),
          field("NODE", "spec.nodeName"),
          field("ACCOUNT", "spec.serviceAccountName"),
          field("HOST", "status.hostIP"),
          field("IP", "status.podIP"),
          field("IPS", "status.podIPs"),
          resource("CPU", "limits.cpu"),
          resource("CPU_MILLI", "requests.cpu", "1m"),
          resource("MEMORY", "limits.memory"),
          resource("MEMORY_MI", "requests.memory", "1Mi"),
        ],
      },
      {},
      { labels: { app: "env" }, annotations: { note: "a note" } },
    );
    const pod = pods.history("environment").at(-1);
    assert.deepEqual(variables(text), {
      PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
      HOSTNAME: "environment",
      HOME: "/root",
      ...kubernetesService,
      MY_DB_SERVICE_HOST: "10.96.5.5",
      MY_DB_SERVICE_PORT: "5432",
      MY_DB_SERVICE_PORT_SQL: "5432",
      MY_DB_PORT: "own",
      MY_DB_PORT_5432_TCP: "tcp://10.96.5.5:5432",
      MY_DB_PORT_5432_TCP_PROTO: "tcp",
      MY_DB_PORT_5432_TCP_PORT: "5432",
      MY_DB_PORT_5432_TCP_ADDR: "10.96.5.5",
      CM_colour: "blue",
      "CM_log.level": "debug",
      password: "s3cret word",
      token: "t0ken",
      PLAIN: "a value",
      COMPOSED: "a value of 10.96.5.5, $(PLAIN), $(NOBODY)",
      COLOUR: "blue",
      PASSWORD: "s3cret word",
      POD: "environment",
      NAMESPACE: "default",
      UID: pod?.metadata.uid,
      LABEL: "env",
      NOTE: "a note",
      NODE: cluster.nodeName,
      ACCOUNT: "default",
      HOST: cluster.nodeAddress,
      IP: pod?.status?.podIP,
      IPS: pod?.status?.podIP,
      CPU: "1",
      CPU_MILLI: "100",
      MEMORY: String(32 * 2 ** 20),
      MEMORY_MI: "16",
    });
    const unlinked = variables(await lab.pods.output("unlinked", printEnv, { enableServiceLinks: false }));
    assert.deepEqual(unlinked, { PATH: unlinked["PATH"], HOSTNAME: "unlinked", HOME: "/root", ...kubernetesService });
  });

  test("a container waits while an object that its environment refers to is missing", async () => {
    const { pods, cluster } = lab;
    const from = { configMapKeyRef: { name: "late", key: "wanted" } };
    await pods.create("without", {
      restartPolicy: "Never",
      containers: [{ ...printEnv, env: [{ name: "LATE", valueFrom: from }] }],
    });
    const waiting = (message: string) =>
      pods.until("without", message, (pod) => {
        const state = statusOf(pod)?.state?.waiting;
        return state?.reason === "CreateContainerConfigError" && state.message === message;
      });
    await waiting('configmap "late" not found');
    await pods.event("without", "Failed", 'Error: configmap "late" not found');
    await cluster.apply({ apiVersion: "v1", kind: "ConfigMap", metadata: { name: "late" }, data: { other: "x" } });
    await waiting("couldn't find key wanted in ConfigMap default/late");
    await cluster.apply({
      apiVersion: "v1",
      kind: "ConfigMap",
      metadata: { name: "late" },
      data: { wanted: "at last" },
    });
    assert.equal(variables(await pods.outputOf("without"))["LATE"], "at last");
    assert.equal(
      statusOf(await pods.until("without", "to succeed", ({ status }) => status?.phase === "Succeeded"))?.restartCount,
      0,
    );
  });

  test("a container's environment is limited to the size that Linux allows, and a small spec that expands beyond it uses no memory", async () => {
    const { pods, agent } = lab;
    const doubled = Array.from({ length: 26 }, (_, level) => ({
      name: `V${level + 1}`,
      value: `$(V${level})$(V${level})`,
    }));
    const wide = { env: [{ name: "A", value: "x".repeat(100_000) }] };
    const part = (_: unknown, index: number) => ({ name: "w", mountPath: `/w/${index}`, subPathExpr: "$(A)" });
    const bombs: Record<string, readonly [message: string, container: ContainerDraft]> = {
      "bomb-value": [
        'environment variable "V14" is longer than 131072 bytes: shorten it, or move the large value to a file',
        { env: [{ name: "V0", value: "0123456789abcdef" }, ...doubled] },
      ],
      "bomb-sum": [
        "environment, command and args of the container exceed 2097152 bytes in total: shorten them, or move large values to files",
        {
          env: [...wide.env, ...Array.from({ length: 5_000 }, (_, index) => ({ name: `B${index}`, value: "$(A)" }))],
        },
      ],
      "bomb-args": [
        "args[1] is longer than 131072 bytes: shorten it, or move the large value to a file",
        { ...wide, args: ["a", "$(A)".repeat(5_000)] },
      ],
      "bomb-path": [
        "subPathExpr and subPath of the container's volumeMounts exceed 2097152 bytes in total: shorten them, or move large values to files",
        { ...wide, volumeMounts: Array.from({ length: 300 }, part) },
      ],
    };
    forgetPeak(agent.pid);
    const before = memoryOf(agent.pid).peak;
    await Promise.all(
      Object.entries(bombs).map(async ([name, [message, container]]) => {
        await pods.create(name, { containers: [container], volumes: [{ name: "w", emptyDir: {} }] });
        await pods.until(name, message, (pod) => {
          const state = statusOf(pod)?.state?.waiting;
          return state?.reason === "CreateContainerConfigError" && state.message === message;
        });
        await pods.event(name, "Failed", `Error: ${message}`);
        await pods.remove(name);
      }),
    );
    const grown = memoryOf(agent.pid).peak - before;
    assert.ok(grown < 128, `${grown.toFixed(0)} MiB`);
  });

  test("command and args override the image's, with variables expanded", async () => {
    const env = [{ name: "WHO", value: "you" }];
    const agnhost = { image: images.agnhost, env };
    const [args, command, both] = await Promise.all([
      lab.pods.output("args", {
        ...agnhost,
        command: undefined,
        args: ["entrypoint-tester", "$(WHO)", "$$(WHO)", "$(NOBODY)"],
      }),
      lab.pods.output("command", { ...agnhost, command: ["/agnhost", "entrypoint-tester"] }),
      lab.pods.output("both", {
        env,
        command: ["sh", "-c", 'pwd; echo "$0 $@"', "$(WHO)"],
        args: ["$(WHO)", "two words"],
        workingDir: "/var/log",
      }),
    ]);
    assert.equal(args, "[/agnhost entrypoint-tester you $(WHO) $(NOBODY)]\n");
    assert.equal(command, "[/agnhost entrypoint-tester]\n");
    assert.equal(both, "/var/log\nyou you two words\n");
  });
});

describe("the security context of a container", { concurrency: 4 }, () => {
  const whoAmI =
    "id -u; id -g; id -G; grep -E '^(CapEff|NoNewPrivs|Seccomp):' /proc/self/status; touch /here 2>&1; true";

  const status = (caps: string, noNewPrivs: number, seccomp: number) =>
    `CapEff:\t${caps}\nNoNewPrivs:\t${noNewPrivs}\nSeccomp:\t${seccomp}\n`;

  test("applies user, groups, capabilities, privileges and a read-only root", async () => {
    const groups = { runAsUser: 1234, runAsGroup: 2345, supplementalGroups: [3456] };
    const [plain, limited, capable] = await Promise.all([
      lab.pods.output("plain", shell(whoAmI)),
      lab.pods.output(
        "limited",
        shell(whoAmI, {
          securityContext: {
            runAsUser: 4321,
            allowPrivilegeEscalation: false,
            seccompProfile: { type: "RuntimeDefault" },
          },
        }),
        { securityContext: groups },
      ),
      lab.pods.output(
        "capable",
        shell(whoAmI, {
          securityContext: { capabilities: { add: ["NET_ADMIN"], drop: ["ALL"] }, readOnlyRootFilesystem: true },
        }),
      ),
    ]);
    // The runtimes' own set of 14 capabilities.
    assert.equal(plain, `0\n0\n0\n${status("00000000a80425fb", 0, 0)}`);
    assert.equal(
      limited,
      `4321\n2345\n2345 3456\n${status("0000000000000000", 1, 2)}touch: /here: Permission denied\n`,
    );
    assert.equal(capable, `0\n0\n0\n${status("0000000000001000", 0, 0)}touch: /here: Read-only file system\n`);
  });

  test("lets a privileged container do everything that the machine allows", async () => {
    const { pods, cluster } = lab;
    const container = shell(whoAmI, { securityContext: { privileged: true } });
    const both = ownCapabilities() & (await particulars[cluster.provider].knownCapabilities(cluster));
    const caps = both.toString(16).padStart(16, "0");
    assert.equal(await pods.output("privileged", container), `0\n0\n0\n${status(caps, 0, 0)}`);
  });

  test("adds the image's groups unless the policy is Strict, and rejects Strict if the runtime does not support it", async () => {
    const { pods, cluster } = lab;
    const groups = shell("id -G", { image: images.agnhost });
    const user = { runAsUser: 1000, supplementalGroups: [60000] };
    const strict = { securityContext: { ...user, supplementalGroupsPolicy: "Strict" } };
    assert.equal(await pods.output("merged", groups, { securityContext: user }), "1000 50000 60000\n");
    const { status } = (await cluster.get<Node>("node", cluster.nodeName)) ?? {};
    const can = status?.features?.supplementalGroupsPolicy === true;
    assert.equal(can, particulars[cluster.provider].runtimeName === "containerd" && cluster.containerd !== "1.6");
    if (can) return assert.equal(await pods.output("strict", groups, strict), "1000 60000\n");
    await pods.create("strict", { nodeName: cluster.nodeName, ...strict });
    const refused = await pods.until("strict", "to be refused", (pod) => pod.status?.phase === "Failed");
    assert.equal(refused.status?.reason, "SupplementalGroupsPolicyNotSupported");
  });

  test("runAsNonRoot rejects containers that run as root, and allows other users", async () => {
    const { pods } = lab;
    const refusal = async (name: string, what: string) => {
      const pod = await pods.until(
        name,
        "to be refused",
        (one) => statusOf(one)?.state?.waiting?.reason === "CreateContainerConfigError",
      );
      const message = `${what} (pod: "${name}_default(${pod.metadata.uid})", container: main)`;
      assert.equal(statusOf(pod)?.state?.waiting?.message, message);
      await pods.event(name, "Failed", `Error: ${message}`);
    };
    await pods.create("root-image", { containers: [{ securityContext: { runAsNonRoot: true } }] });
    await pods.create("root-user", {
      securityContext: { runAsNonRoot: true },
      containers: [{ image: images.nonroot, securityContext: { runAsUser: 0 } }],
    });
    await Promise.all([
      refusal("root-image", "container has runAsNonRoot and image will run as root"),
      refusal("root-user", "container's runAsUser breaks non-root policy"),
    ]);
    assert.equal(
      await lab.pods.output(
        "nonroot",
        { image: images.nonroot, command: ["id", "-u"] },
        { securityContext: { runAsNonRoot: true } },
      ),
      "1234\n",
    );
  });
});

describe("the resources of a container", { concurrency: 4 }, () => {
  const cpuLimit = (pid: number, levelsUp = 0) =>
    cgroupValue(lab.cluster, pid, ["cpu.cfs_quota_us", "cpu.max"], levelsUp).split(" ")[0];
  const memoryLimit = (pid: number, levelsUp = 0) =>
    cgroupValue(lab.cluster, pid, ["memory.limit_in_bytes", "memory.max"], levelsUp);
  const cpuShare = (pid: number, up = 0) => Number(cgroupValue(lab.cluster, pid, ["cpu.shares", "cpu.weight"], up));

  test("a container's resources are set on its own cgroup and its pod's, which is below the cgroup of the QoS class", async () => {
    const { pods, cluster } = lab;
    const limits = (cpu: string, memory: string) => ({ limits: { cpu, memory } });
    await Promise.all([
      pods.create("limits", {
        containers: [
          { resources: { requests: { cpu: "250m", memory: "32Mi" }, limits: { cpu: "500m", memory: "64Mi" } } },
          { name: "small", resources: { requests: { cpu: "10m" }, limits: { cpu: "20m", memory: "16Mi" } } },
        ],
      }),
      pods.create("all-limits", { containers: [{ resources: limits("100m", "32Mi") }] }),
      pods.create("no-limits", {}),
    ]);
    const names = ["limits", "all-limits", "no-limits"];
    const [burstable, guaranteed, besteffort] = await Promise.all(names.map(pods.ready));
    assert.ok(burstable && guaranteed && besteffort);
    const [main, small] = [firstProcess(cluster, burstable), firstProcess(cluster, burstable, "small")];
    assert.deepEqual(
      [cpuLimit(main), memoryLimit(main), cpuLimit(small), memoryLimit(small)],
      ["50000", String(64 * 2 ** 20), "2000", String(16 * 2 ** 20)],
    );
    assert.deepEqual([cpuLimit(main, 1), memoryLimit(main, 1)], ["52000", String(80 * 2 ** 20)]);
    assert.ok(cpuShare(main) > cpuShare(small) && cpuShare(main, 1) >= cpuShare(main));
    const driver = podCgroupDriver(cluster);
    const below = (pod: typeof burstable, qos: QosClass) => {
      const parent = `${cluster.layout.cgroup}${podCgroup(pod.metadata.uid, qos, { driver, root: "", perQos: true })}/`;
      const cgroups = cgroupsOf(cluster, firstProcess(cluster, pod));
      assert.ok(
        cgroups.some((cgroup) => cgroup.startsWith(parent)),
        `${cgroups.join(" ")} is below ${parent}`,
      );
    };
    below(burstable, "Burstable");
    below(guaranteed, "Guaranteed");
    below(besteffort, "BestEffort");
  });

  test("OOM-kills a container over its memory limit, and reports the reason", async () => {
    const { pods } = lab;
    await pods.create("greedy", {
      restartPolicy: "Never",
      containers: [{ command: ["tail", "/dev/zero"], resources: { limits: { memory: "24Mi" } } }],
    });
    const pod = await pods.until("greedy", "to be killed", (one) => statusOf(one)?.state?.terminated !== undefined);
    assertOutOfMemory(lab.cluster, pod);
  });
});
