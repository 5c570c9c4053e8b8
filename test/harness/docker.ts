import { mkdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { hasResourceCapability } from "./capabilities.ts";
import { secondRuntimeHandler } from "./containerd-config.ts";
import { addresses, plainRegistryHost, privateRegistryHost } from "./namespaces.ts";
import { registryAddress } from "./registry.ts";
import type { Layout } from "./state.ts";
import type { Tools } from "./tools.ts";

/** What may change from one start of the daemon to the next. */
export interface DockerSettings {
  /** Containers run on while the daemon is away; they do unless told otherwise. @see https://docs.docker.com/engine/daemon/live-restore/ */
  readonly liveRestore?: boolean;
  /** Who makes the cgroups of containers: systemd puts them into a slice of the machine's. */
  readonly driver?: "cgroupfs" | "systemd";
  /** False for an engine as it is installed: where the machine lacks CAP_SYS_RESOURCE it starts no privileged container. */
  readonly privileged?: boolean;
}

/** Writes the configuration of the cluster's Docker Engine, for its next start. Below the cluster's folder it keeps all that it
 *  has; its cgroups are below the cluster's.
 *  @see https://docs.docker.com/reference/cli/dockerd/#daemon-configuration-file */
export function writeDockerConfig(
  layout: Layout,
  { liveRestore = true, driver = "cgroupfs", privileged = true }: DockerSettings = {},
): void {
  writePrograms(layout, privileged);
  const registry = `${registryAddress(layout)}:${addresses.registryPort}`;
  const config = {
    "data-root": join(layout.docker, "data"),
    "exec-root": dockerExecRoot(layout),
    pidfile: join(layout.docker, "dockerd.pid"),
    hosts: [`unix://${layout.dockerSocket}`],
    // Pods are in a network that the node makes: Docker's own is not used.
    bridge: "none",
    // Of the same program as the default one.
    runtimes: { [secondRuntimeHandler]: { path: "runc" } },
    "exec-opts": [`native.cgroupdriver=${driver}`],
    "cgroup-parent": driver === "systemd" ? "system.slice" : join(layout.cgroup, "docker"),
    "live-restore": liveRestore,
    "registry-mirrors": [`http://${registry}`],
    "insecure-registries": [plainRegistryHost, registry, `${privateRegistryHost}:${addresses.privateRegistryPort}`],
    "shutdown-timeout": 5,
  };
  writeFileSync(configFile(layout), JSON.stringify(config, undefined, 2));
}

/** The command line of the cluster's Docker Engine. It starts a containerd of its own, which ends with it. */
export function dockerdArgv(tools: Tools, layout: Layout): string[] {
  const path = `${programs(layout)}:${process.env.PATH}`;
  return ["env", `PATH=${path}`, tools.path("dockerd"), "--config-file", configFile(layout)];
}

/** Where the Docker Engine keeps what ends with the machine: runc's state, the pods' network namespaces. */
export function dockerExecRoot(layout: Layout): string {
  return join(layout.docker, "exec");
}

/** Writes the programs that the daemon finds before the machine's. */
function writePrograms(layout: Layout, privileged: boolean): void {
  mkdirSync(programs(layout), { recursive: true });
  const runc = join(programs(layout), "runc");
  rmSync(runc, { force: true });
  if (privileged && !hasResourceCapability()) symlinkSync(join(import.meta.dirname, "runc-within-bounds.sh"), runc);
}

/** First on the daemon's PATH. */
function programs(layout: Layout): string {
  return join(layout.docker, "bin");
}

function configFile(layout: Layout): string {
  return join(layout.docker, "daemon.json");
}
