import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { addresses, privateRegistryHost } from "./namespaces.ts";
import type { Layout } from "./state.ts";
import type { Tools } from "./tools.ts";

/** The image of a pod's sandbox. */
export const sandboxImage = "registry.k8s.io/pause:3.10.2";

/** The handler of a second runtime class: the name that upstream's tests use. */
export const secondRuntimeHandler = "test-handler";

/** Where containerd counts, inside: `/v1/metrics`. @see https://github.com/containerd/containerd/blob/v1.6.20/docs/ops.md#metrics */
export const containerdMetrics = "127.0.0.1:1338";

/** Writes the configuration of containerd and CNI below the cluster's folder. */
export function writeContainerdConfig(layout: Layout): void {
  for (const part of ["", "certs.d", "cni", "root", "state"])
    mkdirSync(join(layout.containerd, part), { recursive: true });
  writeFileSync(join(layout.containerd, "config.toml"), containerdToml(layout));
  writeFileSync(join(layout.containerd, "cni", "10-bridge.conflist"), JSON.stringify(cniNetwork(layout), undefined, 2));
  const ownRegistry = `http://127.0.0.1:${addresses.registryPort}`;
  writeMirror(layout, "registry.k8s.io", ownRegistry);
  writeMirror(layout, "docker.io", ownRegistry);
  writeMirror(
    layout,
    `${privateRegistryHost}:${addresses.privateRegistryPort}`,
    `http://${privateRegistryHost}:${addresses.privateRegistryPort}`,
  );
}

/** The command line of the cluster's containerd. */
export function containerdArgv(tools: Tools, layout: Layout): string[] {
  return [tools.path("containerd"), "--config", join(layout.containerd, "config.toml")];
}

/** Where runc keeps its state for this cluster; containers below it are ours alone. */
export function runcRoot(layout: Layout): string {
  return join(layout.containerd, "runc");
}

/** @see https://github.com/containerd/containerd/blob/v1.6.20/docs/cri/config.md */
function containerdToml(layout: Layout): string {
  const cri = 'plugins."io.containerd.grpc.v1.cri"';
  const handler = (name: string): string => `
[${cri}.containerd.runtimes.${name}]
  runtime_type = "io.containerd.runc.v2"
[${cri}.containerd.runtimes.${name}.options]
  BinaryName = "runc"
  Root = "${runcRoot(layout)}"
`;
  return `version = 2
root = "${join(layout.containerd, "root")}"
state = "${join(layout.containerd, "state")}"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.aufs", "io.containerd.tracing.processor.v1.otlp"]
[grpc]
  address = "${layout.containerdSocket}"
[metrics]
  address = "${containerdMetrics}"
[plugins."io.containerd.internal.v1.opt"]
  path = "${join(layout.containerd, "opt")}"
[${cri}]
  sandbox_image = "${sandboxImage}"
  disable_apparmor = true
  restrict_oom_score_adj = ${!hasResourceCapability()}
  tolerate_missing_hugetlb_controller = true
  netns_mounts_under_state_dir = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
[${cri}.containerd]
  snapshotter = "overlayfs"
  default_runtime_name = "runc"
${handler("runc")}${handler(secondRuntimeHandler)}
[${cri}.cni]
  bin_dir = "/usr/lib/cni"
  conf_dir = "${join(layout.containerd, "cni")}"
[${cri}.registry]
  config_path = "${join(layout.containerd, "certs.d")}"
`;
}

/** @see https://www.cni.dev/plugins/current/main/bridge/ and https://www.cni.dev/plugins/current/meta/portmap/ */
function cniNetwork(layout: Layout): object {
  const ipam = {
    type: "host-local",
    dataDir: join(layout.containerd, "ipam"),
    ranges: [[{ subnet: addresses.pods }]],
    routes: [{ dst: "0.0.0.0/0" }],
  };
  return {
    cniVersion: "0.4.0",
    name: `graftlet-${layout.name}`,
    plugins: [
      { type: "bridge", bridge: "cni0", isGateway: true, ipMasq: true, hairpinMode: true, ipam },
      { type: "portmap", capabilities: { portMappings: true } },
    ],
  };
}

/** @see https://github.com/containerd/containerd/blob/v1.6.20/docs/hosts.md */
function writeMirror(layout: Layout, host: string, server: string): void {
  const dir = join(layout.containerd, "certs.d", host);
  mkdirSync(dir, { recursive: true });
  writeFileSync(
    join(dir, "hosts.toml"),
    `server = "${server}"\n[host."${server}"]\n  capabilities = ["pull", "resolve"]\n`,
  );
}

/** CAP_SYS_RESOURCE (24): without it no process may lower its oom_score_adj, and runc fails where asked to. */
function hasResourceCapability(): boolean {
  const effective = /^CapEff:\s*([0-9a-f]+)$/m.exec(readFileSync("/proc/self/status", "utf8"))?.[1] ?? "0";
  return ((BigInt(`0x${effective}`) >> 24n) & 1n) === 1n;
}
