import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import type { CgroupDriver } from "../../src/pod/cgroup-path.ts";
import { containerdConfigs } from "./containerd-config.ts";
import { addresses, privateRegistryHost } from "./namespaces.ts";
import { registryAddress } from "./registry.ts";
import type { ContainerdVersion } from "./containerd-version.ts";
import { type ClusterState, type Layout, readState } from "./state.ts";
import { guestSystems } from "../machines/guest-systems.ts";
import { systems } from "../machines/systems.ts";
import type { Tools } from "./tools.ts";

/** Hosts whose images the cluster's own registry has. */
export const mirroredHosts = ["registry.k8s.io", "docker.io", "ghcr.io"] as const;

/** Writes the configuration of containerd and CNI below the cluster's folder. @param driver who makes containers' cgroups. */
export function writeContainerdConfig(layout: Layout, driver: CgroupDriver): void {
  const state = readState(layout);
  if (!state) throw new Error(`the state of cluster ${layout.name} is gone`);
  for (const part of ["", "certs.d", "root", "state"]) mkdirSync(join(layout.containerd, part), { recursive: true });
  writeFileSync(configFile(layout), containerdConfigs[configVersion(state)](layout, driver));
  writeCniNetwork(layout);
  const ownRegistry = `http://${registryAddress(layout)}:${addresses.registryPort}`;
  for (const host of mirroredHosts) writeMirror(layout, host, ownRegistry);
  writeMirror(
    layout,
    `${privateRegistryHost}:${addresses.privateRegistryPort}`,
    `http://${privateRegistryHost}:${addresses.privateRegistryPort}`,
  );
}

/** The version whose configuration the containerd reads: of a machine with a system of its own that system's. */
function configVersion({ containerd, machineSystem, guestSizes }: ClusterState): ContainerdVersion {
  if (guestSizes) return guestSystems[guestSizes.system ?? "debian-12"].containerdConfig;
  return machineSystem ? systems[machineSystem.system].containerdConfig : containerd;
}

/** The command line of the cluster's containerd. It looks for its shim and for runc on PATH. */
export function containerdArgv(tools: Tools, layout: Layout): string[] {
  const containerd = tools.path("containerd");
  const folders = [containerd, tools.path("runc")].map((program) => dirname(program));
  const path = [...folders, process.env.PATH ?? ""].join(":");
  return ["env", `PATH=${path}`, containerd, "--config", configFile(layout)];
}

function configFile(layout: Layout): string {
  return join(layout.containerd, "config.toml");
}

/** The folder of the CNI network that pods get. */
export function cniFolder(layout: Layout): string {
  return join(layout.containerd, "cni");
}

/** Writes the CNI network that pods get. */
export function writeCniNetwork(layout: Layout): void {
  mkdirSync(cniFolder(layout), { recursive: true });
  writeFileSync(join(cniFolder(layout), "10-bridge.conflist"), JSON.stringify(cniNetwork(layout), undefined, 2));
}

/** @see https://www.cni.dev/plugins/current/main/bridge/ and https://www.cni.dev/plugins/current/meta/portmap/ */
function cniNetwork(layout: Layout): object {
  const ipam = {
    type: "host-local",
    dataDir: join(layout.containerd, "ipam"),
    ranges: [[{ subnet: addresses.cniPods }]],
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
