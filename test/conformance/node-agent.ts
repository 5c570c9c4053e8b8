import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { anyMachine, graftletCommand } from "../harness/agent.ts";
import { start } from "../harness/processes.ts";
import { type NodeRig, rootDirectory } from "./node-rig.ts";
import type { AgentName } from "./options.ts";

/** The program that serves the kubelet's read-only port, on Node alone. */
export const readOnlyPort = join(import.meta.dirname, "stand-ins", "read-only-port.ts");

/** Serves what the suite reads at the kubelet's read-only port, which graftlet leaves out. @param where a command on the node's machine. */
export function startReadOnlyPort(where: (argv: readonly string[]) => readonly string[]): Disposable {
  const relay = start(where([process.execPath, readOnlyPort]), { stdio: ["ignore", "ignore", "inherit"] });
  return { [Symbol.dispose]: () => void relay.kill() };
}

/** True of a test that has the suite put a proxy before the runtime, which delays calls or lets them fail. */
export const wantsCriProxy = (name: string): boolean => name.includes("CriProxy");

/** The suite's flags. @param node the machine that suite and agent are on. @param files the suite's own, by their paths there. @param names of
 *  the tests: only those of the proxy get one. @param ofAgent further flags of the agent. */
export function suiteFlags(
  node: Pick<NodeRig, "nodeName" | "address" | "endpoint">,
  files: { readonly binaries: string; readonly config: string; readonly reports: string },
  names: readonly string[],
  ofAgent: readonly string[] = [],
): readonly string[] {
  return [
    `--k8s-bin-dir=${files.binaries}`,
    `--node-name=${node.nodeName}`,
    // Else, in a pod, the suite would take the pod's own cluster for its own.
    "--host=https://127.0.0.1:6443",
    `--container-runtime-endpoint=${node.endpoint}`,
    `--kubelet-config-file=${files.config}`,
    `--kubelet-flags=${[...kubeletFlags(node), ...ofAgent].join(" ")}`,
    "--prepull-images=false",
    `--report-dir=${files.reports}`,
    ...(names.every(wantsCriProxy) ? ["--cri-proxy-enabled"] : []),
  ];
}

/** Flags for the agent that the suite's own leave out, or set as fits a machine with systemd: of a kubelet they would move every
 *  process of this one. */
export function kubeletFlags({ address }: Pick<NodeRig, "address">): readonly string[] {
  return [`--node-ip=${address}`, "--kubelet-cgroups=", "--system-cgroups=", "--runtime-cgroups="];
}

/** Puts the agent into a folder under the kubelet's name, which its process has as well: tests look for that. */
export function writeKubelet(folder: string, agent: AgentName, rig: Pick<NodeRig, "tools" | "providerArgs">): void {
  mkdirSync(folder);
  const kubelet = join(folder, "kubelet");
  if (agent === "kubelet") {
    symlinkSync(rig.tools.path("kubelet"), kubelet);
    return;
  }
  const named = join(folder, "node", "kubelet");
  mkdirSync(join(folder, "node"));
  symlinkSync(process.execPath, named);
  const words = graftletCommand({ built: true }).map((word) => (word === process.execPath ? named : word));
  const command = [...words, ...rig.providerArgs].map((word) => `'${word}'`);
  writeFileSync(kubelet, `#!/bin/sh\nexec ${command.join(" ")} "$@"\n`, { mode: 0o755 });
}

/** The KubeletConfiguration that the suite adds its own to: upstream's, and what this machine makes necessary.
 *  @see https://github.com/kubernetes/kubernetes/blob/v1.36.3/test/e2e_node/jenkins/default-kubelet-config.yaml */
export function baseConfiguration({ podCIDR }: Pick<NodeRig, "podCIDR">): Record<string, unknown> {
  return {
    apiVersion: "kubelet.config.k8s.io/v1beta1",
    kind: "KubeletConfiguration",
    cgroupDriver: "cgroupfs",
    cgroupRoot: "/",
    podCIDR,
    volumeStatsAggPeriod: "10s",
    fileCheckFrequency: "10s",
    evictionPressureTransitionPeriod: "30s",
    serializeImagePulls: false,
    enforceNodeAllocatable: ["pods"],
    ...anyMachine,
    volumePluginDir: `${rootDirectory}/volume-plugins`,
  };
}
