import { join } from "node:path";
import type { Cluster } from "./cluster.ts";
import { proxyArgv } from "./control-plane.ts";
import { createDaemons } from "./daemons.ts";
import { networkArgv } from "./namespaces.ts";
import { listProcesses, must, signalProcess } from "./processes.ts";
import { runtimeDaemons } from "./runtime-daemon.ts";
import { readState } from "./state.ts";

/** Gives a cluster's node kube-proxy in the mode nftables in place of iptables, and waits until its rules have taken the place of those. */
export async function proxyByNftables({ layout, tools, nodeName, provider, waitFor }: Cluster): Promise<void> {
  const { holder, daemons: running } = readState(layout) ?? {};
  const restarter = running?.["kube-proxy"];
  if (!holder || !restarter) throw new Error(`cluster ${layout.name} has no kube-proxy`);
  const rules = async () => ({
    iptables: (await must(networkArgv(layout, ["iptables-save", "-t", "nat"]))).includes("KUBE-SVC-"),
    nftables: (await must(networkArgv(layout, ["nft", "list", "ruleset"]))).includes("service-ips"),
  });
  const settled = (mode: keyof Awaited<ReturnType<typeof rules>>) => async () => {
    const { iptables, nftables } = await rules();
    return mode === "iptables" ? iptables && !nftables : nftables && !iptables;
  };
  await waitFor("rules of iptables", settled("iptables"));
  const proxies = listProcesses().filter(({ parent }) => parent === restarter.pid);
  for (const one of [restarter, ...proxies]) signalProcess(one, "SIGKILL");
  const daemons = createDaemons({ layout, tools, holder, runtime: runtimeDaemons[provider] });
  const kubeconfig = join(layout.dir, "proxy.kubeconfig");
  await daemons.start("kube-proxy", proxyArgv(tools, kubeconfig, nodeName, "nftables"));
  const explain = () => daemons.logTail("kube-proxy", 15);
  await waitFor("rules of nftables alone", settled("nftables"), { timeoutMs: 60_000, explain });
}
