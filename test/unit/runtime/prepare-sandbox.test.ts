import assert from "node:assert/strict";
import { lstat, mkdir, mkdtemp, readlink, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import {
  ContainerState,
  NamespaceMode,
  PodSandboxConfig,
  SecurityProfile_ProfileType as ProfileType,
} from "../../../src/gen/cri.ts";
import type { PrepareDeps } from "../../../src/runtime/configure-container.ts";
import { aContainer, aPod, aStatus, observe } from "../../fakes/pods.ts";
import { podOf, preparerIn, signal } from "./preparer.ts";

let root = "";
before(async () => void (root = await mkdtemp(join(tmpdir(), "graftlet-prepare-"))));
after(() => rm(root, { recursive: true }));
const setUp = (more?: Partial<PrepareDeps>, settings?: Partial<PrepareDeps["settings"]>) =>
  preparerIn(root, more, settings);

describe("a sandbox's configuration", () => {
  it("a sandbox's configuration has the target's resolver on an isolated network, with an event on pod and node", async () => {
    const { preparer, events } = setUp({}, { network: { isolated: true } });
    await writeFile(join(root, "resolv.conf"), "nameserver 1.1.1.1\nsearch corp.example\n");
    const { dnsConfig } = await preparer.configureSandbox(aPod(), 0, signal);
    assert.deepEqual({ ...dnsConfig }, { servers: ["1.1.1.1"], searches: ["corp.example"], options: [] });
    assert.deepEqual(
      events.map((line) => line.split(":")[0]),
      ["Node Warning MissingClusterDNS", "Pod Warning MissingClusterDNS"],
    );
  });
  it("a sandbox's configuration has the cluster's DNS on a tunneled network, even if the host has systemd-resolved's stub", async () => {
    const { preparer, events } = setUp(
      {},
      { network: { isolated: false, tunneled: true }, clusterDNS: ["10.96.0.10"] },
    );
    await writeFile(join(root, "resolv.conf"), "nameserver 127.0.0.53\noptions edns0 trust-ad\nsearch corp.example\n");
    const { dnsConfig } = await preparer.configureSandbox(aPod(), 0, signal);
    assert.deepEqual(dnsConfig?.servers, ["10.96.0.10"]);
    assert.ok(dnsConfig.searches.includes("corp.example"));
    assert.deepEqual(events, []);
  });
  it("warns that the service tunnel does not serve a hostNetwork pod", async () => {
    const { preparer, events } = setUp({}, { network: { isolated: false, tunneled: true } });
    await writeFile(join(root, "resolv.conf"), "nameserver 1.1.1.1\n");
    await preparer.configureSandbox(aPod({ hostNetwork: true }), 0, signal);
    assert.deepEqual(
      events.map((line) => line.split(":")[0]),
      ["Pod Warning PodNetworkIsolated"],
    );
    events.length = 0;
    await preparer.configureSandbox(aPod(), 0, signal);
    assert.deepEqual(events, []);
  });
  it("a sandbox's configuration equals the kubelet's", async () => {
    const { preparer, events } = setUp();
    await writeFile(join(root, "resolv.conf"), "nameserver 1.1.1.1\nsearch corp.example\n");
    const container = aContainer("c", {
      ports: [{ containerPort: 80, hostPort: 8080 }],
      resources: { requests: { cpu: "100m" }, limits: { cpu: "200m", memory: "64Mi" } },
    });
    const pod = aPod(
      {
        containers: [container],
        hostname: "h",
        securityContext: { runAsUser: 5, supplementalGroups: [7] },
        overhead: { cpu: "250m", memory: "16Mi" },
      },
      { labels: { app: "web", "io.kubernetes.pod.uid": "lie" }, annotations: { note: "n" } },
    );
    const config = await preparer.configureSandbox(pod, 3, signal);
    assert.deepEqual(config.metadata, { name: "p", namespace: "default", uid: "uid-1", attempt: 3 });
    assert.deepEqual([config.hostname, config.logDirectory], ["h", join(root, "logs/default_p_uid-1")]);
    assert.deepEqual(
      { ...config.dnsConfig },
      {
        servers: ["10.96.0.10"],
        searches: ["default.svc.cluster.local", "svc.cluster.local", "cluster.local", "corp.example"],
        options: ["ndots:5"],
      },
    );
    assert.deepEqual(
      config.portMappings.map(({ containerPort, hostPort }) => [containerPort, hostPort]),
      [[80, 8080]],
    );
    assert.deepEqual(config.labels, {
      app: "web",
      "io.kubernetes.pod.name": "p",
      "io.kubernetes.pod.namespace": "default",
      "io.kubernetes.pod.uid": "uid-1",
    });
    assert.deepEqual(config.annotations, { note: "n" });
    const { linux } = config;
    assert.equal(linux?.cgroupParent, "/kubepods/burstable/poduid-1");
    const { resources, overhead, securityContext } = linux ?? {};
    assert.deepEqual(
      [resources?.cpuShares, resources?.cpuQuota, resources?.memoryLimitInBytes],
      [102n, 20_000n, 67_108_864n],
    );
    assert.deepEqual(
      [overhead?.cpuShares, overhead?.cpuQuota, overhead?.memoryLimitInBytes],
      [256n, 25_000n, 16_777_216n],
    );
    assert.deepEqual(
      [securityContext?.seccomp?.profileType, securityContext?.runAsUser?.value, securityContext?.supplementalGroups],
      [ProfileType.RuntimeDefault, 5n, [7n]],
    );
    assert.deepEqual(events, []);
  });
  it("a sandbox's configuration has no hostname with hostNetwork, and is privileged if a container is", async () => {
    const { preparer } = setUp({}, { resolvConf: "" });
    const container = aContainer("c", { securityContext: { privileged: true } });
    const config = await preparer.configureSandbox(aPod({ containers: [container], hostNetwork: true }), 0, signal);
    assert.deepEqual(
      [config.hostname, config.linux?.securityContext?.privileged, config.dnsConfig?.servers],
      ["", true, ["127.0.0.1"]],
    );
    assert.deepEqual(config.linux?.securityContext?.namespaceOptions?.network, NamespaceMode.NODE);
  });
  it("warns on pod and node if the cluster has no DNS", async () => {
    const { preparer, events } = setUp({}, { resolvConf: "", clusterDNS: [] });
    await preparer.configureSandbox(aPod(), 0, signal);
    assert.deepEqual(
      events.map((event) => event.split(":")[0]),
      ["Node Warning MissingClusterDNS", "Pod Warning MissingClusterDNS"],
    );
  });
  it("fails without the resolver file", async () => {
    const { preparer } = setUp({}, { resolvConf: join(root, "none") });
    await assert.rejects(preparer.configureSandbox(aPod(), 0, signal), { code: "not_found" });
  });
});

describe("a container's logs", () => {
  it("a container's logs give the restart count if the runtime lost its containers", async () => {
    const { preparer } = setUp();
    const count = (name: string) =>
      preparer.restartCountFromLogs(aPod({}, { name: "logged" }), aContainer(name), signal);
    assert.equal(await count("none"), 0);
    const directory = join(root, "logs/default_logged_uid-1/c");
    await mkdir(join(directory, "9.log"), { recursive: true });
    for (const name of ["0.log", "2.log.20260101-000000.gz", "x.log", "10.txt"])
      await writeFile(join(directory, name), "");
    assert.equal(await count("c"), 3);
  });
  it("a container's logs are found by their directory; a pod without a log directory, or with an empty one, has none", async () => {
    const { preparer } = setUp();
    const pod = aPod({}, { name: "told" });
    const directory = join(root, "logs/default_told_uid-1");
    assert.deepEqual([...(await preparer.loggedContainers(pod, signal))], []);
    await preparer.createLogDirectory(pod, signal);
    assert.equal((await stat(directory)).mode & 0o7777, 0o755);
    assert.deepEqual([...(await preparer.loggedContainers(pod, signal))], []);
    await mkdir(join(directory, "c"));
    assert.deepEqual([...(await preparer.loggedContainers(pod, signal))], ["c"]);
  });
  it("a container's logs are linked for log collectors once they exist, and removed with the container, rotated or not", async () => {
    const { preparer, configure } = setUp();
    const [pod, container] = podOf({});
    const config = await configure(pod, container);
    const sandbox = {
      id: "s",
      config: PodSandboxConfig.fromPartial({ logDirectory: join(root, "logs/default_p_uid-1") }),
      ips: Promise.resolve([]),
    };
    const start = { pod, container, observed: observe([], []), sandbox, mounted: new Map<string, never>() };
    await preparer.linkLog(start, config, "abc");
    const link = join(root, "links/p_default_c-abc.log");
    await assert.rejects(readlink(link), { code: "ENOENT" });
    const log = join(root, "logs/default_p_uid-1/c/2.log");
    await writeFile(log, "");
    await preparer.linkLog(start, config, "abc");
    assert.equal(await readlink(link), log);
    const rotated = [`${log}.20260501-123456`, `${log}.20260501-123455.gz`];
    const other = join(root, "logs/default_p_uid-1/c/20.log");
    for (const path of [...rotated, other]) await writeFile(path, "");
    const ended = aStatus(container, ContainerState.CONTAINER_EXITED, { id: "abc", logPath: log });
    await preparer.removeLog(pod, ended, signal);
    for (const path of [link, log, ...rotated]) await assert.rejects(lstat(path), { code: "ENOENT" });
    await lstat(other);
  });
});
