// make demo: KUBECONFIG=… joins that cluster (CONTAINERD=unix:///… names the runtime); without it a
// cluster is made and removed again. KEEP=1 leaves everything up. --agent kubelet shows the same with the real kubelet.
import { parseArgs } from "node:util";
import { demoInExistingCluster } from "./demo/join.ts";
import { demoInOwnCluster } from "./demo/own-cluster.ts";

const { values } = parseArgs({ options: { agent: { type: "string", default: "graftlet" } } });
const keep = (process.env.KEEP ?? "") !== "" && process.env.KEEP !== "0";
const kubeconfig = process.env.KUBECONFIG;
try {
  if (values.agent !== "graftlet" && values.agent !== "kubelet")
    throw new Error(`--agent is graftlet or kubelet, not ${values.agent}`);
  if (kubeconfig)
    await demoInExistingCluster({
      kubeconfig,
      containerd: process.env.CONTAINERD ?? "unix:///run/containerd/containerd.sock",
      keep,
    });
  else await demoInOwnCluster({ keep, agent: values.agent });
} catch (error) {
  console.error(error instanceof Error ? error.message : String(error));
  process.exitCode = 1;
}
