import assert from "node:assert/strict";
import { test } from "node:test";
import { type SandboxSpecInput, sandboxSecurity, sandboxSpec } from "../../../../../providers/docker/sandbox/spec.ts";
import {
  NamespaceMode,
  PodSandboxConfig,
  Protocol,
  SecurityProfile_ProfileType as ProfileType,
} from "../../../../../src/gen/cri.ts";

type Wish = Parameters<typeof PodSandboxConfig.fromPartial>[0];

function specOf(config: Wish, input: Partial<SandboxSpecInput> = {}) {
  return sandboxSpec({
    config: PodSandboxConfig.fromPartial({
      metadata: { name: "web", namespace: "default", uid: "uid-1", attempt: 0 },
      hostname: "web",
      ...config,
    }),
    runtimeHandler: "",
    nodeName: "n1",
    image: "pause:1",
    network: "net-1",
    cgroupDriver: "cgroupfs",
    oomScoreAdj: -998,
    securityOptions: ["no-new-privileges:true"],
    ...input,
  });
}

test("a pod without host namespaces gets its own hostname, ports and namespaces", () => {
  const { Hostname, HostConfig } = specOf({ linux: { cgroupParent: "/kubepods/podx" } });
  assert.equal(Hostname, "web");
  assert.partialDeepStrictEqual(HostConfig, {
    NetworkMode: "net-1",
    IpcMode: "shareable",
    CgroupParent: "/kubepods/podx",
    CpuShares: 2,
    OomScoreAdj: -998,
    ReadonlyRootfs: true,
    LogConfig: { Type: "none" },
    RestartPolicy: { Name: "no" },
    SecurityOpt: ["no-new-privileges:true"],
  });
  assert.equal(HostConfig?.PidMode, undefined);
  assert.equal(HostConfig?.Privileged, undefined);
});

test("a pod in the host's namespaces has the host's name and exposes no ports itself", () => {
  const { NODE } = NamespaceMode;
  const config = {
    portMappings: [{ protocol: Protocol.TCP, containerPort: 80, hostPort: 80, hostIp: "" }],
    linux: { securityContext: { namespaceOptions: { network: NODE, pid: NODE, ipc: NODE } } },
  };
  const spec = sandboxSpec({
    config: PodSandboxConfig.fromPartial({ hostname: "ignored", ...config }),
    runtimeHandler: "",
    nodeName: "n1",
    image: "pause:1",
    cgroupDriver: "cgroupfs",
    oomScoreAdj: 0,
    securityOptions: [],
  });
  assert.equal(spec.Hostname, undefined);
  assert.partialDeepStrictEqual(spec.HostConfig, {
    NetworkMode: "host",
    UTSMode: "host",
    PidMode: "host",
    IpcMode: "host",
    PortBindings: {},
  });
  assert.equal(spec.HostConfig?.OomScoreAdj, undefined);
});

test("binds host ports by protocol and address, and ignores ports without one", () => {
  const port = (protocol: Protocol, containerPort: number, hostPort: number, hostIp = "") => ({
    protocol,
    containerPort,
    hostPort,
    hostIp,
  });
  const { ExposedPorts, HostConfig } = specOf({
    portMappings: [
      port(Protocol.TCP, 80, 8080),
      port(Protocol.TCP, 80, 8081, "127.0.0.1"),
      port(Protocol.UDP, 53, 53),
      port(Protocol.SCTP, 9, 9),
      port(Protocol.TCP, 443, 0),
    ],
  });
  assert.deepEqual(Object.keys(ExposedPorts ?? {}), ["80/tcp", "53/udp", "9/sctp"]);
  assert.deepEqual(HostConfig?.PortBindings, {
    "80/tcp": [
      { HostIp: "", HostPort: "8080" },
      { HostIp: "127.0.0.1", HostPort: "8081" },
    ],
    "53/udp": [{ HostIp: "", HostPort: "53" }],
    "9/sctp": [{ HostIp: "", HostPort: "9" }],
  });
});

test("translates the cgroup parent for the daemon's driver", () => {
  const slice = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podx.slice";
  const parent = (cgroupParent: string, cgroupDriver: string) =>
    specOf({ linux: { cgroupParent } }, { cgroupDriver }).HostConfig?.CgroupParent;
  assert.equal(parent("/kubepods/podx", "cgroupfs"), "/kubepods/podx");
  assert.equal(parent(slice, "systemd"), "kubepods-burstable-podx.slice");
  assert.equal(parent("/kubepods/podx", "none"), undefined);
  assert.equal(parent("", "cgroupfs"), undefined);
});

test("sets resolver, sysctls, groups, user and runtime as requested", () => {
  const spec = specOf(
    {
      dnsConfig: { servers: ["10.96.0.10"], searches: ["svc.local"], options: ["ndots:5"] },
      linux: {
        sysctls: { "net.core.somaxconn": "512" },
        securityContext: { runAsUser: { value: 1000n }, runAsGroup: { value: 50n }, supplementalGroups: [7n, 8n] },
      },
    },
    { runtimeHandler: "runsc" },
  );
  assert.equal(spec.User, "1000:50");
  assert.partialDeepStrictEqual(spec.HostConfig, {
    Dns: ["10.96.0.10"],
    DnsSearch: ["svc.local"],
    DnsOptions: ["ndots:5"],
    Sysctls: { "net.core.somaxconn": "512" },
    GroupAdd: ["7", "8"],
    Runtime: "runsc",
  });
});

test("ignores a group without a user, so that the sandbox image's user applies", () => {
  assert.equal(specOf({ linux: { securityContext: { runAsGroup: { value: 50n } } } }).User, "");
});

test("rejects a separate user namespace for the pod", () => {
  const namespaceOptions = { usernsOptions: { mode: NamespaceMode.POD } };
  assert.throws(() => specOf({ linux: { securityContext: { namespaceOptions } } }), { code: "unimplemented" });
});

test("uses the daemon's seccomp profile unless another is requested, and adds no privileges", () => {
  assert.equal(sandboxSecurity(undefined).seccomp?.profileType, ProfileType.RuntimeDefault);
  assert.equal(sandboxSecurity(undefined).noNewPrivs, true);
});
