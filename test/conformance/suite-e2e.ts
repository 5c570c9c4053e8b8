import { cpSync } from "node:fs";
import { join } from "node:path";
import { startGraftlet, startKubelet } from "../harness/agent.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { addNfsImages, addStorageImages, pullAll } from "../harness/csi.ts";
import { mayAsk } from "../harness/manifests.ts";
import { startDns } from "../harness/dns.ts";
import { insideArgv, networkArgv } from "../harness/namespaces.ts";
import { must, start } from "../harness/processes.ts";
import { type Layout, readState } from "../harness/state.ts";
import { isGuest } from "../matrix.ts";
import { runGinkgo } from "./ginkgo.ts";
import { targetWith } from "./options.ts";
import { offerPrivateImage, pluginAudience } from "./private-image.ts";
import { prepareFolder, type RunSuite, type SuiteRun } from "./suite-run.ts";
import { startTunneled } from "./tunneled.ts";

/** Names of tests that run the images of Kubernetes' storage group; those of DRA reach their driver through one. */
const ofStorage = /CSI Mock|Driver: csi-hostpath|MutableCSINodeAllocatableCount|\[DRA\]/;

/** Names of tests that run an NFS server. */
const ofNfs = /NFS|Driver: nfs/;

/** The suite of a cluster, on one whose only node is the agent's. Its tests reach the API server, and of the node what the API server
 *  gives them. */
export const runE2e: RunSuite = async (run) => {
  const { suite, reports } = prepareFolder(run, "e2e.test");
  await using stack = new AsyncDisposableStack();
  const {
    cluster,
    rootDir,
    args,
    env = {},
  } = await (run.network === "tunneled" ? startTunneled : startNode)(run, stack);
  // Before all of it goes, however the run ends.
  stack.defer(() => cpSync(cluster.layout.logs, join(run.folder, "logs"), { recursive: true }));
  return await runGinkgo({
    ginkgo: join(run.programs, "ginkgo"),
    suite,
    description: "Kubernetes e2e suite",
    names: run.names,
    processes: run.processes ?? 6,
    args: [
      `--kubeconfig=${cluster.adminKubeconfig}`,
      `--kubectl-path=${cluster.tools.path("kubectl")}`,
      `--kubelet-root-dir=${rootDir}`,
      "--provider=skeleton",
      "--num-nodes=1",
      `--report-dir=${reports}`,
      ...args,
    ],
    env,
    folder: run.folder,
    start: (argv, options) => start(networkArgv(cluster.layout, argv), options),
    ended: run.ended,
    limits: run.limits,
  });
};

/** A cluster whose node is there, and that has a DNS. */
export interface NodeUnderTest {
  readonly cluster: Cluster;
  /** The node's root directory. */
  readonly rootDir: string;
  /** Further flags of the suite. */
  readonly args: readonly string[];
  /** Variables of the suite's own. */
  readonly env?: Readonly<Record<string, string>>;
}

/** Starts a cluster whose only node is the agent's. @param stack takes what has to go. */
async function startNode(run: SuiteRun, stack: AsyncDisposableStack): Promise<NodeUnderTest> {
  const cluster = stack.use(
    await startCluster({ name: "conformance", provider: targetWith(run.provider), say: run.say }),
  );
  // In a guest process 1 is its own.
  if (!isGuest(cluster.provider)) await showOwnMounts(cluster.layout);
  const ofCsi = run.names.some((name) => ofStorage.test(name));
  const rootDir = ofCsi && run.agent === "kubelet" ? await shortRoot(cluster) : cluster.layout.kubeletRoot;
  const { flags, env } = await offerPrivateImage(cluster.layout, run);
  if (flags.length > 0) await cluster.apply(mayAsk(pluginAudience));
  const options = { rootDir, args: flags };
  const agent =
    run.agent === "kubelet" ? startKubelet(cluster, options) : startGraftlet(cluster, { built: true, ...options });
  stack.use(await agent);
  await startDns(cluster);
  const images = [
    ...(ofCsi ? await addStorageImages(cluster) : []),
    ...(run.names.some((name) => ofNfs.test(name)) ? await addNfsImages(cluster) : []),
  ];
  if (isGuest(cluster.provider) && images.length > 0) await pullAll(cluster, images);
  return { cluster, rootDir, args: [], env };
}

/** Shows the root directory at a short path of the cluster's machine, for an agent that reaches no socket whose path has more than 107
 *  characters: tests of CSI put some 70 of them below that directory. */
async function shortRoot(cluster: Cluster): Promise<string> {
  const path = "/srv";
  await cluster.mustRunInside(["mount", "--bind", cluster.layout.kubeletRoot, path]);
  return path;
}

/** Tests make volumes from a pod that enters the mounts of process 1: inside, those are the cluster's machine's. */
async function showOwnMounts(layout: Layout): Promise<void> {
  const holder = readState(layout)?.holder;
  if (!holder) throw new Error(`the state of the cluster ${layout.name} cannot be read: ${layout.stateFile}`);
  await must(insideArgv(layout, holder, ["mount", "--bind", `/proc/${holder.pid}`, "/proc/1"]));
}
