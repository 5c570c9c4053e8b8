import { cpSync, existsSync, mkdirSync, readdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { stringify } from "yaml";
import { graftletCommand } from "../harness/agent.ts";
import { must, start } from "../harness/processes.ts";
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
  const programs = join(run.folder, "stand-ins");
  const units = join(run.folder, "units");
  linkStandIns(programs);
  await using started = new AsyncDisposableStack();
  started.defer(() => stopUnits(programs, units));
  if (run.agent === "graftlet") started.use(startReadOnlyPort(rig));
  const config = join(run.folder, "base-config.yaml");
  writeFileSync(config, stringify(baseConfiguration(rig)));
  return await runGinkgo({
    ginkgo: join(run.programs, "ginkgo"),
    suite,
    description: "E2eNode Suite",
    names: run.names,
    processes: run.processes ?? 5,
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
    start(argv, { env, ...options }) {
      const PATH = `${programs}:${process.env.PATH ?? ""}`;
      return start(rig.argv(argv, run.folder), {
        ...options,
        cwd: "/",
        env: { ...env, PATH, STAND_IN_UNITS: units },
      });
    },
    ended: run.ended,
    limits: run.limits,
  });
};

/** What the suite's own flags for the agent do not say, or say as fits a machine with systemd: of a kubelet they would move every
 *  process of this one. */
export function kubeletFlags({ address }: Pick<NodeRig, "address">): readonly string[] {
  return [`--node-ip=${address}`, "--kubelet-cgroups=", "--system-cgroups=", "--runtime-cgroups="];
}

/** Puts stand-ins for systemd's programs into a folder: no systemd runs here, and tests that restart the agent do it through systemd. */
function linkStandIns(folder: string): void {
  mkdirSync(folder);
  for (const name of ["systemd-run", "systemctl", "journalctl", "sudo"])
    symlinkSync(join(import.meta.dirname, "stand-ins", "systemd.sh"), join(folder, name));
}

/** Serves what the suite reads at the kubelet's read-only port, which graftlet leaves out. */
function startReadOnlyPort(rig: NodeRig): Disposable {
  const script = join(import.meta.dirname, "stand-ins", "read-only-port.ts");
  const relay = start(rig.argv([process.execPath, script], "/"), { stdio: ["ignore", "ignore", "inherit"] });
  return { [Symbol.dispose]: () => void relay.kill() };
}

/** Ends what the stand-ins have started and the suite has left. */
async function stopUnits(programs: string, units: string): Promise<void> {
  for (const name of existsSync(units) ? readdirSync(units) : [])
    await must([join(programs, "systemctl"), "stop", name], { env: { ...process.env, STAND_IN_UNITS: units } });
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
    evictionPressureTransitionPeriod: "30s",
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
