// make demo: KUBECONFIG=… joins that cluster (CONTAINERD=unix:///…, or DOCKER=unix:///… with PROVIDER=docker, names the
// runtime); without it a cluster is made and removed again. PROVIDER=helm installs the chart in a cluster made for it. KEEP=1
// leaves everything up. --agent kubelet shows the same with the real kubelet.
import { parseArgs } from "node:util";
import { demoOfHelm } from "./demo/helm.ts";
import { demoInExistingCluster, runtimeToJoin } from "./demo/join.ts";
import { demoInOwnCluster } from "./demo/own-cluster.ts";
import { needsOf, preparations, prepare } from "./demo/prepare.ts";
import { createSteps } from "./demo/steps.ts";
import { providerUnderTest } from "../harness/runtime-daemon.ts";

const keep = (process.env.KEEP ?? "") !== "" && process.env.KEEP !== "0";
const kubeconfig = process.env.KUBECONFIG;
try {
  const { values } = parseArgs({ options: { agent: { type: "string", default: "graftlet" } } });
  const byHelm = process.env.GRAFTLET_TEST_PROVIDER === "helm";
  if (values.agent !== "graftlet" && values.agent !== "kubelet")
    throw new Error(`--agent is graftlet or kubelet, not ${values.agent}`);
  if (byHelm && kubeconfig) throw new Error("make demo PROVIDER=helm has a cluster of its own: leave out KUBECONFIG");
  const provider = byHelm ? "ssh" : providerUnderTest();
  if (values.agent === "kubelet" && provider !== "cri")
    throw new Error(`the kubelet speaks CRI alone: leave out --agent kubelet or PROVIDER=${provider}`);
  const joined = runtimeToJoin[provider]?.();
  if (kubeconfig && !joined)
    throw new Error(`make demo joins a cluster with PROVIDER=cri or docker: leave out KUBECONFIG`);
  if (kubeconfig && joined) await demoInExistingCluster({ kubeconfig, runtime: joined, keep });
  else {
    const needs = needsOf({ helm: byHelm, agent: values.agent });
    const steps = createSteps(preparations(needs) + 1);
    await prepare(needs, steps);
    const options = { keep, kit: needs.kit, steps };
    await (byHelm ? demoOfHelm(options) : demoInOwnCluster({ ...options, agent: values.agent }));
  }
} catch (error) {
  console.error(error instanceof Error ? error.message : String(error));
  process.exitCode = 1;
}
