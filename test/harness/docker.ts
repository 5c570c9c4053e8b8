import { mkdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { hasResourceCapability } from "./capabilities.ts";
import { secondRuntimeHandler } from "./containerd-config.ts";
import { cdiDirectory } from "./dra-driver.ts";
import { addresses, plainRegistryHost, privateRegistryHost } from "./namespaces.ts";
import { registryAddress } from "./registry.ts";
import { type Layout, readState } from "./state.ts";
import type { Tools } from "./tools.ts";
import { guestSystemOf } from "../machines/guest-systems.ts";

/** What may change from one start of the daemon to the next. */
export interface DockerSettings {
  /** Containers run on while the daemon is away; they do unless told otherwise. @see https://docs.docker.com/engine/daemon/live-restore/ */
  readonly liveRestore?: boolean;
  /** Who makes the cgroups of containers: systemd puts them into a slice of the machine's. */
  readonly driver?: "cgroupfs" | "systemd";
  /** False for an engine as it is installed: where the machine lacks CAP_SYS_RESOURCE it starts no privileged container. */
  readonly privileged?: boolean;
  /** False for an engine that injects no CDI devices. Not for Debian's. */
  readonly cdi?: boolean;
  /** The socket of a containerd that is there already; it starts one of its own unless given. */
  readonly containerd?: string;
}

/** Writes the configuration of the cluster's Docker Engine, for its next start. Below the cluster's folder it keeps all that it
 *  has; its cgroups are below the cluster's.
 *  @see https://docs.docker.com/reference/cli/dockerd/#daemon-configuration-file */
export function writeDockerConfig(
  layout: Layout,
  { liveRestore = true, driver = "cgroupfs", privileged = true, cdi = true, containerd }: DockerSettings = {},
): void {
  writePrograms(layout, privileged);
  const state = readState(layout);
  const ociRuntime = guestSystemOf(layout)?.ociRuntime ?? "runc";
  const registry = `${registryAddress(layout)}:${addresses.registryPort}`;
  const config = {
    "data-root": join(layout.docker, "data"),
    "exec-root": dockerExecRoot(layout),
    pidfile: join(layout.docker, "dockerd.pid"),
    hosts: [`unix://${layout.dockerSocket}`],
    // Pods are in a network that the node makes: Docker's own is not used.
    bridge: "none",
    // Of the same program as the default one.
    runtimes: {
      [secondRuntimeHandler]: { path: ociRuntime },
      ...(ociRuntime !== "runc" && { [ociRuntime]: { path: ociRuntime } }),
    },
    "default-runtime": ociRuntime,
    "exec-opts": [`native.cgroupdriver=${driver}`],
    "cgroup-parent": driver === "systemd" ? "system.slice" : join(state?.machineSystem ? "/" : layout.cgroup, "docker"),
    "live-restore": liveRestore,
    "registry-mirrors": [`http://${registry}`],
    "insecure-registries": [plainRegistryHost, registry, `${privateRegistryHost}:${addresses.privateRegistryPort}`],
    "shutdown-timeout": 5,
    ...(containerd !== undefined && { containerd }),
    // Debian's refuses to start with either.
    ...(isBuilt(layout) && { "cdi-spec-dirs": [cdiDirectory(layout)], features: { cdi } }),
  };
  writeFileSync(configFile(layout), JSON.stringify(config, undefined, 2));
}

/** The command line of the cluster's Docker Engine. It starts a containerd of its own, which ends with it, and looks for that, runc and
 *  docker-proxy on PATH. */
export function dockerdArgv(tools: Tools, layout: Layout): string[] {
  const beside = isBuilt(layout) ? ["docker-proxy", "containerd", "runc"] : [];
  const folders = [programs(layout), ...beside.map((name) => dirname(tools.path(name))), process.env.PATH];
  return ["env", `PATH=${folders.join(":")}`, tools.path("dockerd"), "--config-file", configFile(layout)];
}

/** Whether it is one of those that the harness builds. */
function isBuilt(layout: Layout): boolean {
  return (readState(layout)?.docker ?? "20.10") !== "20.10";
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
