import { cpSync } from "node:fs";
import { join } from "node:path";
import { startGraftlet, startKubelet } from "../harness/agent.ts";
import { startCluster } from "../harness/cluster.ts";
import { addStorageImages } from "../harness/csi.ts";
import { startDns } from "../harness/dns.ts";
import { insideArgv, networkArgv } from "../harness/namespaces.ts";
import { must, start } from "../harness/processes.ts";
import { type Layout, readState } from "../harness/state.ts";
import { runGinkgo } from "./ginkgo.ts";
import { prepareFolder, type RunSuite } from "./suite-run.ts";

/** The suite of a cluster, on one whose only node is the agent's. Its tests reach the API server, and of the node what the API server
 *  gives them. */
export const runE2e: RunSuite = async (run) => {
  const { suite, reports } = prepareFolder(run, "e2e.test");
  await using cluster = await startCluster({ name: "conformance", provider: run.provider, say: run.say });
  await showOwnMounts(cluster.layout);
  await using _ = run.agent === "kubelet" ? await startKubelet(cluster) : await startGraftlet(cluster, { built: true });
  // Before all of it goes, however the run ends.
  using logs = new DisposableStack();
  logs.defer(() => cpSync(cluster.layout.logs, join(run.folder, "logs"), { recursive: true }));
  await startDns(cluster);
  if (run.names.some((name) => /CSI Mock|Driver: csi-hostpath/.test(name))) await addStorageImages(cluster);
  return await runGinkgo({
    ginkgo: join(run.programs, "ginkgo"),
    suite,
    description: "Kubernetes e2e suite",
    names: run.names,
    processes: run.processes ?? 6,
    args: [
      `--kubeconfig=${cluster.adminKubeconfig}`,
      `--kubectl-path=${cluster.tools.path("kubectl")}`,
      `--kubelet-root-dir=${cluster.layout.kubeletRoot}`,
      "--provider=skeleton",
      "--num-nodes=1",
      `--report-dir=${reports}`,
    ],
    folder: run.folder,
    start: (argv, options) => start(networkArgv(cluster.layout, argv), options),
    ended: run.ended,
    limits: run.limits,
  });
};

/** Tests make volumes from a pod that enters the mounts of process 1: inside, those are the cluster's machine's. */
async function showOwnMounts(layout: Layout): Promise<void> {
  const holder = readState(layout)?.holder;
  if (!holder) throw new Error(`the state of the cluster ${layout.name} cannot be read: ${layout.stateFile}`);
  await must(insideArgv(layout, holder, ["mount", "--bind", `/proc/${holder.pid}`, "/proc/1"]));
}
