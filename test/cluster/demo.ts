// make demo: KUBECONFIG=… joins that cluster (CONTAINERD=unix:///…, or DOCKER=unix:///… with PROVIDER=docker, names the
// runtime); without it a cluster is made and removed again. KEEP=1 leaves everything up. --agent kubelet shows the same with
// the real kubelet.
import { parseArgs } from "node:util";
import { demoInExistingCluster, runtimeToJoin } from "./demo/join.ts";
import { demoInOwnCluster } from "./demo/own-cluster.ts";
import { providerUnderTest } from "../harness/runtime-daemon.ts";

const { values } = parseArgs({ options: { agent: { type: "string", default: "graftlet" } } });
const keep = (process.env.KEEP ?? "") !== "" && process.env.KEEP !== "0";
const kubeconfig = process.env.KUBECONFIG;
try {
  if (values.agent !== "graftlet" && values.agent !== "kubelet")
    throw new Error(`--agent is graftlet or kubelet, not ${values.agent}`);
  const provider = providerUnderTest();
  if (values.agent === "kubelet" && provider !== "cri")
    throw new Error(`the kubelet speaks CRI alone: leave out --agent kubelet or PROVIDER=${provider}`);
  const joined = runtimeToJoin[provider]?.();
  if (kubeconfig && !joined)
    throw new Error(`make demo joins a cluster with PROVIDER=cri or docker: leave out KUBECONFIG`);
  if (kubeconfig && joined) await demoInExistingCluster({ kubeconfig, runtime: joined, keep });
  else await demoInOwnCluster({ keep, agent: values.agent });
} catch (error) {
  console.error(error instanceof Error ? error.message : String(error));
  process.exitCode = 1;
}
