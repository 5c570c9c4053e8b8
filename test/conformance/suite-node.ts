import { cpSync, mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { stringify } from "yaml";
import { graftletCommand } from "../harness/agent.ts";
import { start } from "../harness/processes.ts";
import { runGinkgo } from "./ginkgo.ts";
import { type NodeRig, rootDirectory, startNodeRig } from "./node-rig.ts";
import type { AgentName } from "./options.ts";
import { prepareFolder, type RunSuite } from "./suite-run.ts";

/** The suite of a node alone. It starts an API server, and the agent itself as a program that is called `kubelet`. */
export const runE2eNode: RunSuite = async (run) => {
  const { suite, reports } = prepareFolder(run, "e2e_node.test");
  await using rig = await startNodeRig("conformance-node", run.provider);
  // Before all of it goes, however the run ends.
  using logs = new DisposableStack();
  logs.defer(() => cpSync(rig.logs, join(run.folder, "logs"), { recursive: true }));
  const binaries = join(run.folder, "bin");
  writeKubelet(binaries, run.agent, rig);
  const config = join(run.folder, "base-config.yaml");
  writeFileSync(config, stringify(baseConfiguration(rig)));
  return await runGinkgo({
    ginkgo: join(run.programs, "ginkgo"),
    suite,
    description: "E2eNode Suite",
    names: run.names,
    processes: 5,
    args: [
      `--k8s-bin-dir=${binaries}`,
      `--node-name=${rig.nodeName}`,
      // Else, in a pod, the suite would take the pod's own cluster for its own.
      "--host=https://127.0.0.1:6443",
      `--container-runtime-endpoint=${rig.endpoint}`,
      `--kubelet-config-file=${config}`,
      `--kubelet-flags=${kubeletFlags(rig).join(" ")}`,
      "--prepull-images=false",
      `--report-dir=${reports}`,
    ],
    folder: run.folder,
    start: (argv, options) => start(rig.argv(argv, run.folder), { ...options, cwd: "/" }),
    say: run.say,
  });
};

/** What the suite's own flags for the agent do not say, or say as fits a machine with systemd: of a kubelet they would move every
 *  process of this one. */
export function kubeletFlags({ address }: Pick<NodeRig, "address">): readonly string[] {
  return [`--node-ip=${address}`, "--kubelet-cgroups=", "--system-cgroups=", "--runtime-cgroups="];
}

/** Puts the agent into a folder under the kubelet's name. */
function writeKubelet(folder: string, agent: AgentName, rig: NodeRig): void {
  mkdirSync(folder);
  const kubelet = join(folder, "kubelet");
  if (agent === "kubelet") {
    symlinkSync(rig.tools.path("kubelet"), kubelet);
    return;
  }
  const command = [...graftletCommand({ built: true }), ...rig.providerArgs].map((word) => `'${word}'`);
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
    serializeImagePulls: false,
    enforceNodeAllocatable: ["pods"],
    failCgroupV1: false,
    failSwapOn: false,
    // A developer's full disk is no reason to evict a test's pods or images.
    evictionHard: {
      "memory.available": "100Mi",
      "nodefs.available": "1%",
      "nodefs.inodesFree": "1%",
      "imagefs.available": "1%",
    },
    imageGCHighThresholdPercent: 100,
    imageGCLowThresholdPercent: 99,
    volumePluginDir: `${rootDirectory}/volume-plugins`,
  };
}
