import assert from "node:assert/strict";
import { mkdir, mkdtemp, readFile, rm, stat, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import {
  ContainerState,
  Image,
  MountPropagation,
  NamespaceMode,
  RuntimeHandlerFeatures,
  Signal,
} from "../../../src/gen/cri.ts";
import type { Container } from "../../../src/objects.ts";
import type { PrepareDeps } from "../../../src/runtime/configure-container.ts";
import { aContainer, aStatus, observe } from "../../fakes/pods.ts";
import { podOf, preparerIn } from "./preparer.ts";

let root = "";
before(async () => void (root = await mkdtemp(join(tmpdir(), "graftlet-prepare-"))));
after(() => rm(root, { recursive: true }));
const setUp = (more?: Parameters<typeof preparerIn>[1], settings?: Partial<PrepareDeps["settings"]>) =>
  preparerIn(root, more, settings);

describe("a container's configuration", () => {
  it("a container's configuration has the API server's address as reachable from the target's pods", async () => {
    const network = { isolated: true, kubernetesService: { host: "192.0.2.9", port: 6443 } };
    const { configure } = setUp({}, { network });
    const { envs } = await configure(...podOf({}));
    const env = Object.fromEntries(envs.map(({ key, value }) => [key, value.toString()]));
    assert.equal(env["KUBERNETES_PORT"], "tcp://192.0.2.9:6443");
  });
  it("reads variables from files that other containers wrote, but from no file of the host", async () => {
    const work = join(root, "work");
    await mkdir(work);
    await writeFile(join(work, "env"), "A='written'");
    await writeFile(join(root, "machine"), "A='secret'");
    await symlink("../machine", join(work, "link"));
    const { configure } = setUp({ mounted: new Map([["work", { hostPath: work, readOnly: false }]]) });
    const from = (path: string, volumeName = "work") =>
      configure(...podOf({ env: [{ name: "V", valueFrom: { fileKeyRef: { key: "A", path, volumeName } } }] }));
    const { envs } = await from("env");
    assert.equal(envs.find(({ key }) => key === "V")?.value.toString(), "written");
    for (const path of ["link", "none"]) await assert.rejects(from(path), { message: "couldn't parse env file" });
    await assert.rejects(from("env", "other"), { message: 'cannot find the volume "other" referenced by FileKeyRef' });
  });
  it("a container's configuration has the stop signal of the spec, with the feature gate", async () => {
    const lifecycle = { stopSignal: "SIGRTMIN+2" };
    assert.equal((await setUp().configure(...podOf({ lifecycle }))).stopSignal, Signal.SIGRTMINPLUS2);
    assert.equal((await setUp().configure(...podOf({}))).stopSignal, Signal.RUNTIME_DEFAULT);
    const without = setUp({}, { stopSignals: false });
    assert.equal((await without.configure(...podOf({ lifecycle }))).stopSignal, Signal.RUNTIME_DEFAULT);
  });
  it("a container's configuration shares the target container's process namespace with an ephemeral container, and fails without one", async () => {
    const { configure } = setUp();
    const debug = { ...aContainer("debug"), targetContainerName: "c" };
    const [pod] = podOf({}, { ephemeralContainers: [debug] });
    await assert.rejects(configure(pod, debug), { message: "unable to find target container c" });
    const seen = observe([], [aStatus(aContainer("c"), ContainerState.CONTAINER_RUNNING, { id: "target" })]);
    const { linux } = await configure(pod, debug, undefined, seen);
    const { pid, targetId } = linux?.securityContext?.namespaceOptions ?? {};
    assert.deepEqual([pid, targetId], [NamespaceMode.TARGET, "target"]);
  });
  it("a container's configuration equals the kubelet's", async () => {
    const { configure } = setUp();
    const [pod, container] = podOf(
      {
        command: ["run", "$(MODE)"],
        args: ["$(KUBERNETES_SERVICE_HOST)", "$(NONE)", "$$(MODE)"],
        envFrom: [{ configMapRef: { name: "settings" } }, { secretRef: { name: "none", optional: true } }],
        env: [{ name: "IP", valueFrom: { fieldRef: { fieldPath: "status.podIP" } } }],
        workingDir: "/w",
        tty: true,
        stdin: true,
        ports: [{ name: "http", containerPort: 80, protocol: "TCP" }],
        resources: { requests: { cpu: "100m" }, limits: { memory: "64Mi" } },
      },
      { terminationGracePeriodSeconds: 30 },
      { labels: { app: "web" } },
    );
    const config = await configure(pod, container);
    assert.deepEqual(config.metadata, { name: "c", attempt: 2 });
    assert.deepEqual([config.image?.image, config.image?.userSpecifiedImage], ["sha256:abc", "busybox"]);
    assert.deepEqual(
      [config.command, config.args],
      [
        ["run", "fast"],
        ["10.96.0.1", "$(NONE)", "$(MODE)"],
      ],
    );
    const env = Object.fromEntries(config.envs.map(({ key, value }) => [key, value.toString()]));
    assert.deepEqual([env["MODE"], env["IP"], env["KUBERNETES_PORT_443_TCP_ADDR"]], ["fast", "10.0.0.2", "10.96.0.1"]);
    assert.deepEqual(
      [config.workingDir, config.tty, config.stdin, config.stdinOnce, config.logPath],
      ["/w", true, true, false, "c/2.log"],
    );
    assert.deepEqual(config.labels, {
      "io.kubernetes.container.name": "c",
      "io.kubernetes.pod.name": "p",
      "io.kubernetes.pod.namespace": "default",
      "io.kubernetes.pod.uid": "uid-1",
    });
    assert.deepEqual(config.annotations, {
      "io.kubernetes.container.hash": "ad819b5c",
      "io.kubernetes.container.ports": '[{"name":"http","containerPort":80,"protocol":"TCP"}]',
      "io.kubernetes.container.restartCount": "2",
      "io.kubernetes.container.terminationMessagePath": "/dev/termination-log",
      "io.kubernetes.container.terminationMessagePolicy": "File",
      "io.kubernetes.pod.terminationGracePeriod": "30",
      "graftlet.dev/resources": '{"requests":{"cpu":"100m"},"limits":{"memory":"64Mi"}}',
    });
    const { resources, securityContext } = config.linux ?? {};
    assert.deepEqual(
      [resources?.cpuShares, resources?.memoryLimitInBytes, resources?.oomScoreAdj],
      [102n, 67_108_864n, 999n],
    );
    assert.deepEqual(
      [securityContext?.runAsUser?.value, securityContext?.namespaceOptions?.pid],
      [0n, NamespaceMode.CONTAINER],
    );
  });
  it("creates and mounts volumes, the hosts file and an empty termination message file", async () => {
    const { configure } = setUp();
    const [pod, container] = podOf({
      volumeMounts: [
        { name: "data", mountPath: "/data", mountPropagation: "HostToContainer" },
        { name: "data", mountPath: "ro", readOnly: true },
        { name: "config", mountPath: "/etc/config" },
      ],
    });
    const { mounts } = await configure(pod, container);
    const podDirectory = join(root, "kubelet/pods/uid-1");
    assert.deepEqual(
      mounts.map(({ containerPath, hostPath, readonly, propagation }) => [
        containerPath,
        hostPath,
        readonly,
        propagation,
      ]),
      [
        ["/data", "/vol/data", false, MountPropagation.PROPAGATION_HOST_TO_CONTAINER],
        ["/ro", "/vol/data", true, 0],
        ["/etc/config", "/vol/config", true, 0],
        ["/etc/hosts", join(podDirectory, "etc-hosts"), false, 0],
        ["/dev/termination-log", join(podDirectory, "containers/c/00000000"), false, 0],
      ],
    );
    const mode = async (path: string) => ((await stat(path)).mode & 0o777).toString(8);
    const paths = ["", "containers", "containers/c", "etc-hosts", "containers/c/00000000"].map((path) =>
      join(podDirectory, path),
    );
    assert.deepEqual(await Promise.all([...paths, join(root, "logs/default_p_uid-1/c")].map(mode)), [
      "750",
      "750",
      "750",
      "644",
      "666",
      "755",
    ]);
    assert.match(await readFile(join(podDirectory, "etc-hosts"), "utf8"), /^10\.0\.0\.2\tp$/m);
    assert.equal(await readFile(join(podDirectory, "containers/c/00000000"), "utf8"), "");
  });
  it("does not manage /etc/hosts with a volume there or without a pod IP, and uses the host's with hostNetwork", async () => {
    const { configure } = setUp();
    const paths = (config: { mounts: readonly { containerPath: string }[] }) =>
      config.mounts.map(({ containerPath }) => containerPath);
    const own = podOf({ terminationMessagePath: "", volumeMounts: [{ name: "data", mountPath: "/etc/hosts" }] });
    assert.deepEqual(paths(await configure(...own)), ["/etc/hosts"]);
    assert.deepEqual(paths(await configure(...podOf({ terminationMessagePath: "" }), [])), []);
    const onHost = podOf({ terminationMessagePath: "why" }, { hostNetwork: true }, { uid: "uid-2" });
    assert.deepEqual(paths(await configure(...onHost, [])), ["/etc/hosts", "/why"]);
    const hosts = await readFile(join(root, "kubelet/pods/uid-2/etc-hosts"), "utf8");
    assert.equal(hosts, `# Kubernetes-managed hosts file (host network).\n${await readFile("/etc/hosts", "utf8")}`);
  });
  it("a container's configuration has owner labels on a shared runtime", async () => {
    const { configure } = setUp({}, { ownerLabels: { "graftlet.dev/node": "node" } });
    assert.equal((await configure(...podOf({}))).labels["graftlet.dev/node"], "node");
  });
  it("under SELinux, relabels volumes managed by the node, but never a hostPath", async () => {
    const facts = {
      memoryBytes: 2 ** 32,
      swapBytes: 0,
      hugePageSizes: [],
      cgroupV2: false,
      swapController: false,
      thermalPaths: ["/sys/heat"],
      selinux: true,
    };
    const { configure } = setUp({ facts: async () => facts });
    const volumes = [
      { name: "data", emptyDir: {} },
      { name: "config", hostPath: { path: "/vol/config" } },
    ];
    const config = await configure(
      ...podOf(
        {
          volumeMounts: [
            { name: "data", mountPath: "/a" },
            { name: "config", mountPath: "/b" },
          ],
        },
        { volumes },
      ),
    );
    assert.deepEqual(
      config.mounts.map(({ selinuxRelabel }) => selinuxRelabel),
      [true, false, true, true],
    );
    assert.ok(config.linux?.securityContext?.maskedPaths.includes("/sys/heat"));
  });
  it("mounts subPaths and subPathExprs from their bind mounts", async () => {
    const { configure } = setUp();
    const config = await configure(
      ...podOf({
        env: [
          { name: "WHO", valueFrom: { fieldRef: { fieldPath: "metadata.name" } } },
          { name: "LOGS", value: "logs/$(WHO)" },
        ],
        volumeMounts: [
          { name: "data", mountPath: "/whole", subPath: "" },
          { name: "data", mountPath: "/part", subPath: "a/b" },
          { name: "config", mountPath: "/expanded", subPathExpr: "$(LOGS)/$$(WHO)" },
        ],
      }),
    );
    assert.deepEqual(
      config.mounts.slice(0, 3).map(({ hostPath, readonly }) => [hostPath, readonly]),
      [
        ["/vol/data", false],
        ["/parts/c/1/data:a/b", false],
        ["/parts/c/2/config:logs/p/$(WHO)", true],
      ],
    );
  });
  it("mounts recursively read-only if the runtime supports it, and propagates later mounts", async () => {
    const modes = ["Disabled", "IfPossible", "Enabled"];
    const volumeMounts = [
      ...modes.map((recursiveReadOnly) => ({ name: "data", mountPath: "/x", readOnly: true, recursiveReadOnly })),
      { name: "data", mountPath: "/y", mountPropagation: "HostToContainer" },
      { name: "data", mountPath: "/z", mountPropagation: "Bidirectional" },
    ];
    const can = RuntimeHandlerFeatures.fromPartial({ recursiveReadOnlyMounts: true });
    const able = await setUp({ handlerFeatures: async () => can }).configure(...podOf({ volumeMounts }));
    assert.deepEqual(
      able.mounts.slice(0, 5).map(({ recursiveReadOnly, propagation }) => [recursiveReadOnly, propagation]),
      [
        [false, MountPropagation.PROPAGATION_PRIVATE],
        [true, MountPropagation.PROPAGATION_PRIVATE],
        [true, MountPropagation.PROPAGATION_PRIVATE],
        [false, MountPropagation.PROPAGATION_HOST_TO_CONTAINER],
        [false, MountPropagation.PROPAGATION_BIDIRECTIONAL],
      ],
    );
    const unable = await setUp().configure(...podOf({ volumeMounts: volumeMounts.slice(0, 2) }));
    assert.deepEqual(
      unable.mounts.slice(0, 2).map(({ recursiveReadOnly }) => recursiveReadOnly),
      [false, false],
    );
  });
  it("a container's configuration has the user namespace of its sandbox, and its IDs in all mounts", async () => {
    const ids = [{ hostId: 131_072, containerId: 0, length: 65_536 }];
    const sandboxUsers = { mode: NamespaceMode.POD, uids: ids, gids: ids };
    const pod = podOf({ volumeMounts: [{ name: "data", mountPath: "/x" }] });
    const { linux, mounts } = await setUp({ sandboxUsers }).configure(...pod);
    assert.deepEqual(linux?.securityContext?.namespaceOptions?.usernsOptions, sandboxUsers);
    assert.ok(mounts.length > 2);
    for (const { uidMappings, gidMappings } of mounts) assert.deepEqual([uidMappings, gidMappings], [ids, ids]);
    const plain = await setUp().configure(...pod);
    for (const { uidMappings, gidMappings } of plain.mounts) assert.deepEqual([uidMappings, gidMappings], [[], []]);
  });
  it("treats handler features as unsupported if the RuntimeClass was deleted", async () => {
    let asked = 0;
    const handlerFeatures = async () => {
      asked += 1;
      throw new Error('runtimeclass.node.k8s.io "gone" not found');
    };
    const { configure } = setUp({ handlerFeatures });
    const mount = { name: "data", mountPath: "/x", readOnly: true };
    await configure(...podOf({ volumeMounts: [mount] }));
    assert.equal(asked, 0);
    const { mounts } = await configure(...podOf({ volumeMounts: [{ ...mount, recursiveReadOnly: "IfPossible" }] }));
    assert.deepEqual([mounts[0]?.recursiveReadOnly, asked], [false, 1]);
  });
  it("runs as the image's user: a UID, a name, or root if none is set", async () => {
    const userOf = async (image: Partial<Image> | undefined) => {
      const { configure } = setUp({ images: { imageStatus: async () => image && Image.fromPartial(image) } });
      const { runAsUser, runAsUsername } = (await configure(...podOf({}))).linux?.securityContext ?? {};
      return [runAsUser?.value, runAsUsername];
    };
    assert.deepEqual(await userOf({ uid: { value: 5n } }), [5n, ""]);
    assert.deepEqual(await userOf({ username: "app" }), [undefined, "app"]);
    assert.deepEqual(await userOf({}), [0n, ""]);
    assert.deepEqual(await userOf(undefined), [0n, ""]);
  });
  it("honours runAsNonRoot", async () => {
    const { configure } = setUp();
    await assert.rejects(
      configure(...podOf({ securityContext: { runAsNonRoot: true } })),
      /container has runAsNonRoot and image will run as root/,
    );
  });
  const refusals: readonly (readonly [name: string, container: Partial<Container>, message: string | RegExp])[] = [
    ["a ConfigMap is missing", { envFrom: [{ configMapRef: { name: "none" } }] }, 'configmap "none" not found'],
    [
      "a Secret is missing",
      { env: [{ name: "A", valueFrom: { secretKeyRef: { name: "none", key: "k" } } }] },
      'secret "none" not found',
    ],
    [
      "several references are missing, naming the first one",
      { envFrom: [{ configMapRef: { name: "x" } }, { secretRef: { name: "y" } }] },
      'configmap "x" not found',
    ],
    [
      "a key of a ConfigMap is missing",
      { env: [{ name: "A", valueFrom: { configMapKeyRef: { name: "settings", key: "k" } } }] },
      "couldn't find key k in ConfigMap default/settings",
    ],
    [
      "a volume is missing",
      { volumeMounts: [{ name: "none", mountPath: "/x" }] },
      'cannot find volume "none" to mount into container "c"',
    ],
    [
      "an expanded subPathExpr is absolute",
      {
        env: [{ name: "A", value: "/etc" }],
        volumeMounts: [{ name: "data", mountPath: "/x", subPathExpr: "$(A)/passwd" }],
      },
      "error SubPath `/etc/passwd` must not be an absolute path",
    ],
    [
      "an expanded subPathExpr leads out of the volume",
      {
        env: [{ name: "A", value: ".." }],
        volumeMounts: [{ name: "data", mountPath: "/x", subPathExpr: "a/$(A)/b" }],
      },
      "unable to provision SubPath `a/../b`: must not contain '..'",
    ],
    [
      "variables of a subPathExpr have no value",
      {
        env: [{ name: "A", value: "" }],
        volumeMounts: [{ name: "data", mountPath: "/x", subPathExpr: "$(C)/$(A)/$(B)/$(A)" }],
      },
      "missing value for A, B, C",
    ],
    [
      "a mount requires recursive read-only mode, and the runtime does not support it",
      { volumeMounts: [{ name: "data", mountPath: "/x", readOnly: true, recursiveReadOnly: "Enabled" }] },
      'failed to resolve recursive read-only mode: volume "data" requested recursive read-only mode, but it is not supported by the runtime',
    ],
    [
      "a mount with recursiveReadOnly is not read-only",
      { volumeMounts: [{ name: "data", mountPath: "/x", recursiveReadOnly: "IfPossible" }] },
      'failed to resolve recursive read-only mode: volume "data" requested recursive read-only mode, but it is not read-only',
    ],
    [
      "a mount with recursiveReadOnly has mount propagation",
      {
        volumeMounts: [
          {
            name: "data",
            mountPath: "/x",
            readOnly: true,
            recursiveReadOnly: "IfPossible",
            mountPropagation: "HostToContainer",
          },
        ],
      },
      'failed to resolve recursive read-only mode: volume "data" requested recursive read-only mode, but it is not compatible with propagation "HostToContainer"',
    ],
    [
      "a mount's propagation is unknown",
      { volumeMounts: [{ name: "data", mountPath: "/x", mountPropagation: "Odd" }] },
      'invalid MountPropagation mode: "Odd"',
    ],
  ];
  for (const [name, container, message] of refusals) {
    it(`a container's configuration is rejected if ${name}`, async () => {
      const { configure } = setUp();
      await assert.rejects(configure(...podOf(container)), { message });
    });
  }
  it("waits for services, except for a static pod", async () => {
    const { configure } = setUp({ services: { list: () => undefined } });
    await assert.rejects(configure(...podOf({})), {
      message: "services have not yet been read at least once, cannot construct envvars",
    });
    const fromFile = podOf({}, {}, { annotations: { "kubernetes.io/config.source": "file" } });
    assert.deepEqual((await configure(...fromFile)).envs, []);
  });
});
