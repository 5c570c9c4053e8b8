import assert from "node:assert/strict";
import { test } from "node:test";
import { containerHostConfig, resourceSettings } from "../../../../../providers/docker/container/host-config.ts";
import { containerUser } from "../../../../../providers/docker/container/security-options.ts";
import {
  ContainerConfig,
  LinuxContainerSecurityContext,
  MountPropagation,
  NamespaceMode,
  SecurityProfile_ProfileType as ProfileType,
  SupplementalGroupsPolicy,
} from "../../../../../src/gen/cri.ts";
import { fakeClock } from "../../../../fakes/clock.ts";
import { fakeHost } from "../../../../fakes/host.ts";

type Partial = Parameters<typeof ContainerConfig.fromPartial>[0];

const host = fakeHost({ clock: fakeClock() });
const sandbox = { Id: "box", HostConfig: { OomScoreAdj: -998, CgroupParent: "/kubepods/pod1", Runtime: "runsc" } };
const containerLogs = { maxSizeBytes: 10_485_760, maxFiles: 5 };

function hostConfig(config: Partial, box = sandbox) {
  return containerHostConfig(
    { config: ContainerConfig.fromPartial(config), sandbox: box, containerLogs, fs: host.fs },
    AbortSignal.timeout(5000),
  );
}

const secured = (securityContext: Parameters<typeof LinuxContainerSecurityContext.fromPartial>[0]) =>
  hostConfig({ linux: { securityContext } });

test("a container joins its sandbox's namespaces, cgroup and runtime", async () => {
  const config = await secured({ namespaceOptions: { pid: NamespaceMode.CONTAINER } });
  const { NetworkMode, IpcMode, PidMode, UTSMode, CgroupParent, Runtime } = config;
  assert.deepEqual(
    { NetworkMode, IpcMode, PidMode, UTSMode, CgroupParent, Runtime },
    {
      NetworkMode: "container:box",
      IpcMode: "container:box",
      PidMode: "",
      UTSMode: undefined,
      CgroupParent: "/kubepods/pod1",
      Runtime: "runsc",
    },
  );
});

test("passes devices as requested, CDI devices by name", async () => {
  const devices = [{ hostPath: "/dev/null", containerPath: "/dev/gpu", permissions: "rw" }];
  const config = await hostConfig({
    devices,
    CDIDevices: [{ name: "vendor.com/gpu=0" }, { name: "vendor.com/gpu=1" }],
  });
  assert.deepEqual(config.Devices, [{ PathOnHost: "/dev/null", PathInContainer: "/dev/gpu", CgroupPermissions: "rw" }]);
  assert.deepEqual(config.DeviceRequests, [{ Driver: "cdi", DeviceIDs: ["vendor.com/gpu=0", "vendor.com/gpu=1"] }]);
  assert.ok(!("DeviceRequests" in (await hostConfig({ devices }))), "a daemon without CDI is asked for none");
});

test("supports host, pod and target-container namespaces", async () => {
  const node = await secured({
    namespaceOptions: { network: NamespaceMode.NODE, ipc: NamespaceMode.NODE, pid: NamespaceMode.NODE },
  });
  assert.deepEqual(
    [node.NetworkMode, node.IpcMode, node.PidMode, node.UTSMode],
    ["container:box", "host", "host", "host"],
  );
  assert.equal((await secured({ namespaceOptions: { pid: NamespaceMode.POD } })).PidMode, "container:box");
  const target = await secured({ namespaceOptions: { pid: NamespaceMode.TARGET, targetId: "app" } });
  assert.equal(target.PidMode, "container:app");
});

test("omits unset resources; memory without a swap limit disables swap", () => {
  assert.deepEqual(resourceSettings({ cpuShares: 2n, memoryLimitInBytes: 0n }), { CpuShares: 2 });
  assert.deepEqual(
    resourceSettings({ cpuQuota: 50_000n, cpuPeriod: 100_000n, memoryLimitInBytes: 64n, cpusetCpus: "0" }),
    {
      CpuQuota: 50_000,
      CpuPeriod: 100_000,
      Memory: 64,
      MemorySwap: 64,
      CpusetCpus: "0",
    },
  );
  assert.equal(resourceSettings({ memoryLimitInBytes: 64n, memorySwapLimitInBytes: 128n }).MemorySwap, 128);
  assert.deepEqual(resourceSettings(undefined), {});
});

test("sets a negative OOM score only if the sandbox could have one", async () => {
  const score = async (oomScoreAdj: bigint, OomScoreAdj: number) => {
    const box = { ...sandbox, HostConfig: { ...sandbox.HostConfig, OomScoreAdj } };
    return (await hostConfig({ linux: { resources: { oomScoreAdj } } }, box)).OomScoreAdj;
  };
  assert.equal(await score(-997n, -998), -997);
  assert.equal(await score(-997n, 0), 0);
  assert.equal(await score(1000n, 0), 1000);
});

test("sets exactly the listed masked and read-only paths, or none for a privileged container", async () => {
  const listed = await secured({ maskedPaths: ["/proc/kcore"], readonlyPaths: [] });
  assert.deepEqual([listed.MaskedPaths, listed.ReadonlyPaths], [["/proc/kcore"], []]);
  const privileged = await secured({ privileged: true, maskedPaths: ["/proc/kcore"] });
  assert.deepEqual([privileged.Privileged, privileged.MaskedPaths], [true, undefined]);
});

test("seccomp: the daemon's default, unconfined, or the profile's content", async () => {
  const text = '{ "defaultAction": "SCMP_ACT_ALLOW" }\n';
  host.files.put("/var/lib/kubelet/seccomp/p.json", { data: text });
  const options = async (profileType: ProfileType, localhostRef = ""): Promise<unknown> =>
    (await secured({ seccomp: { profileType, localhostRef } })).SecurityOpt;
  assert.deepEqual(await options(ProfileType.RuntimeDefault), []);
  assert.deepEqual(await options(ProfileType.Unconfined), ["seccomp=unconfined"]);
  assert.deepEqual(await options(ProfileType.Localhost, "/var/lib/kubelet/seccomp/p.json"), [`seccomp=${text}`]);
  assert.deepEqual((await secured({})).SecurityOpt, ["seccomp=unconfined"]);
  await assert.rejects(options(ProfileType.Localhost, "/none.json"), {
    code: "failed_precondition",
    message: /cannot load seccomp profile "\/none.json"/,
  });
});

test("sets AppArmor, SELinux, no-new-privileges, capabilities and groups", async () => {
  const config = await secured({
    seccomp: { profileType: ProfileType.RuntimeDefault },
    apparmor: { profileType: ProfileType.Localhost, localhostRef: "web" },
    selinuxOptions: { type: "t", level: "s0:c1" },
    noNewPrivs: true,
    capabilities: { addCapabilities: ["NET_ADMIN"], dropCapabilities: ["ALL"] },
    supplementalGroups: [7n, 8n],
  });
  assert.deepEqual(config.SecurityOpt, ["apparmor=web", "no-new-privileges:true", "label=type:t", "label=level:s0:c1"]);
  assert.deepEqual([config.CapAdd, config.CapDrop, config.GroupAdd], [["NET_ADMIN"], ["ALL"], ["7", "8"]]);
  await assert.rejects(secured({ capabilities: { addAmbientCapabilities: ["NET_ADMIN"] } }), { code: "unimplemented" });
});

test("keeps the order of mounts; SELinux relabelling uses Binds", async () => {
  const config = await hostConfig({
    mounts: [
      { hostPath: "/b", containerPath: "/two", readonly: true },
      { hostPath: "/a", containerPath: "/one", propagation: MountPropagation.PROPAGATION_BIDIRECTIONAL },
      { hostPath: "/c", containerPath: "/three", readonly: true, selinuxRelabel: true },
    ],
  });
  assert.deepEqual(config.Mounts, [
    {
      Type: "bind",
      Source: "/b",
      Target: "/two",
      ReadOnly: true,
      BindOptions: { CreateMountpoint: true, ReadOnlyNonRecursive: true },
    },
    {
      Type: "bind",
      Source: "/a",
      Target: "/one",
      ReadOnly: false,
      BindOptions: { Propagation: "rshared", CreateMountpoint: true },
    },
  ]);
  assert.deepEqual(config.Binds, ["/c:/three:ro,Z"]);
});

test("rejects mounts that Docker does not support", async () => {
  const refused = (mount: object, code: string) =>
    assert.rejects(hostConfig({ mounts: [{ hostPath: "/a", containerPath: "/m", ...mount }] }), { code });
  await refused({ recursiveReadOnly: true }, "unimplemented");
  await refused({ image: { image: "x" } }, "unimplemented");
  await refused({ uidMappings: [{ hostId: 1, containerId: 0, length: 1 }] }, "unimplemented");
  await refused({ hostPath: "/a:b", selinuxRelabel: true }, "invalid_argument");
});

test("configures log rotation with the kubelet's limits", async () => {
  assert.deepEqual((await hostConfig({})).LogConfig, {
    Type: "json-file",
    Config: { "max-size": "10485760", "max-file": "5" },
  });
});

test("users: number or name; a group only with a user", () => {
  const user = (given: Parameters<typeof LinuxContainerSecurityContext.fromPartial>[0]) =>
    containerUser(LinuxContainerSecurityContext.fromPartial(given));
  assert.equal(user({ runAsUser: { value: 0n } }), "0");
  assert.equal(user({ runAsUser: { value: 1000n }, runAsGroup: { value: 0n } }), "1000:0");
  assert.equal(user({ runAsUsername: "app" }), "app");
  assert.equal(user({}), "");
  assert.throws(() => user({ runAsGroup: { value: 5n } }), { code: "invalid_argument" });
  assert.throws(() => user({ supplementalGroupsPolicy: SupplementalGroupsPolicy.Strict }), { code: "unimplemented" });
});
