import { startDns } from "../harness/dns.ts";
import { ownPodAddresses } from "../harness/edge-machine.ts";
import { startHelmLab } from "../harness/helm-lab.ts";
import { releaseOf } from "../integration/helm/release.ts";
import { tunneled } from "../integration/helm/tunnel.ts";
import type { NodeUnderTest } from "./suite-e2e.ts";
import type { SuiteRun } from "./suite-run.ts";

/** Starts a cluster whose first node runs graftlet's Pod and the DNS, and a tunneled machine beside it, which is where tests' pods are
 *  put: no route leads there, and its pods have addresses that nobody else has. @param stack takes what has to go. */
export async function startTunneled(run: SuiteRun, stack: AsyncDisposableStack): Promise<NodeUnderTest> {
  const lab = stack.use(await startHelmLab("e2e-tunneled", { say: run.say }));
  const { cluster, edge } = lab;
  ownPodAddresses(edge.layout);
  await startDns(cluster);
  await releaseOf(lab).install(...tunneled, "--set=nodes[0].defaultTaint=false");
  await cluster.mustKubectl(["cordon", cluster.nodeName]);
  return { cluster, rootDir: "/var/lib/kubelet", args: ["--allowed-not-ready-nodes=1"] };
}
