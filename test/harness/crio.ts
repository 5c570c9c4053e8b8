import { chmodSync, copyFileSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { hasResourceCapability } from "./capabilities.ts";
import { cniFolder, mirroredHosts, writeCniNetwork } from "./containerd.ts";
import { cniPlugins, runcRoot, sandboxImage } from "./containerd-config.ts";
import { addresses, privateRegistryHost } from "./namespaces.ts";
import { registryAddress } from "./registry.ts";
import { type Layout, ownsKernel } from "./state.ts";
import { guestSystemOf } from "../machines/guest-systems.ts";

/** The command line of CRI-O on a machine that has it in containerd's place: it listens where containerd would. @param folder where its
 *  programs are. */
export function crioCommand(layout: Layout, folder: string): string {
  const { config, policy, registries } = files(layout);
  const flags = [
    `--config=${config}`,
    "--config-dir=",
    `--signature-policy=${policy}`,
    `--registries-conf=${registries}`,
  ];
  return [join(folder, "crio"), ...flags].join(" ");
}

/** Writes the configuration of CRI-O, the registries that it pulls from, and CNI, below the cluster's folder.
 *  @see https://github.com/cri-o/cri-o/blob/v1.34.0/docs/crio.conf.5.md */
export function writeCrioConfig(layout: Layout): void {
  const { config, policy, registries, runc } = files(layout);
  mkdirSync(layout.containerd, { recursive: true });
  writeCniNetwork(layout);
  writeFileSync(config, crioConfig(layout));
  writeFileSync(policy, JSON.stringify({ default: [{ type: "insecureAcceptAnything" }] }));
  writeFileSync(registries, registriesConfig(layout));
  if (ownsKernel(layout)) return;
  copyFileSync(join(import.meta.dirname, "runc-of-crio.sh"), runc);
  chmodSync(runc, 0o755);
}

function files({ containerd }: Layout) {
  return {
    config: join(containerd, "crio.conf"),
    policy: join(containerd, "policy.json"),
    registries: join(containerd, "registries.conf"),
    runc: join(containerd, "runc-of-crio"),
  };
}

function crioConfig(layout: Layout): string {
  const at = (name: string): string => JSON.stringify(join(layout.containerd, name));
  const { name, path, cgroups } = ociRuntimeOf(layout);
  return `[crio]
root = ${at("storage")}
runroot = ${at("storage-run")}
storage_driver = "overlay"
version_file = ${at("version")}
version_file_persist = ${at("version-persist")}
clean_shutdown_file = ${at("clean-shutdown")}
[crio.api]
listen = "${layout.containerdSocket}"
stream_address = "127.0.0.1"
stream_port = "0"
[crio.runtime]
${cgroups}
default_runtime = "${name}"
namespaces_dir = ${at("namespaces")}
[crio.runtime.runtimes.${name}]
runtime_path = "${path}"
runtime_root = "${join(runcRoot(layout), "k8s.io")}"
monitor_path = "/usr/bin/conmon"
monitor_cgroup = "pod"
[crio.image]
pause_image = "${sandboxImage}"
[crio.network]
network_dir = "${cniFolder(layout)}"
plugin_dirs = ["${cniPlugins}"]
[crio.nri]
enable_nri = false
`;
}

/** What runs containers, and who makes their cgroups. On a machine with a kernel of its own CRI-O is as it is installed: crun, systemd,
 *  AppArmor where the kernel has it; and it tells of its pods' events. */
function ociRuntimeOf(layout: Layout): { readonly name: string; readonly path: string; readonly cgroups: string } {
  const ofGuest = guestSystemOf(layout);
  if (ofGuest) {
    const cgroups = ['cgroup_manager = "systemd"', "enable_pod_events = true"].join("\n");
    return { name: ofGuest.ociRuntime, path: join("/usr/bin", ofGuest.ociRuntime), cgroups };
  }
  const path = hasResourceCapability() ? "/usr/sbin/runc" : files(layout).runc;
  const cgroups = ['cgroup_manager = "cgroupfs"', 'apparmor_profile = "unconfined"'].join("\n");
  return { name: "runc", path, cgroups };
}

/** @see https://github.com/containers/image/blob/v5.35.0/docs/containers-registries.conf.5.md */
function registriesConfig(layout: Layout): string {
  const own = `${registryAddress(layout)}:${addresses.registryPort}`;
  const mirrored = mirroredHosts.map((host) =>
    ["[[registry]]", `location = "${host}"`, "[[registry.mirror]]", `location = "${own}"`, "insecure = true"].join(
      "\n",
    ),
  );
  const ofSecret = [
    "[[registry]]",
    `location = "${privateRegistryHost}:${addresses.privateRegistryPort}"`,
    "insecure = true",
  ];
  return ['unqualified-search-registries = ["docker.io"]', ...mirrored, ...ofSecret, ""].join("\n");
}
