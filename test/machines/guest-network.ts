import { agentAddresses } from "../harness/agent-machine.ts";
import { addresses, networkArgv } from "../harness/namespaces.ts";
import { must, run } from "../harness/processes.ts";
import type { Layout } from "../harness/state.ts";
import { guestCable } from "./qemu.ts";

/** Plugs a guest into its cluster's network: it is the neighbour of the control plane and, where that is a machine of its own, of the
 *  agent. Pods are behind it, services are the control plane's. */
export async function joinNetwork(layout: Layout): Promise<void> {
  const { guest, node, cniPods } = addresses;
  const { agent, target } = agentAddresses;
  const cable = (await run(networkArgv(layout, ["ip", "link", "show", "agent0"]))).code === 0;
  const script = `
    ip link add lan0 type bridge
    if [ -e /proc/sys/net/bridge/bridge-nf-call-iptables ]; then echo 0 > /proc/sys/net/bridge/bridge-nf-call-iptables; fi
    ip tuntap add ${guestCable} mode tap
    for port in uplink0 ${guestCable} ${cable ? "agent0" : ""}; do ip link set $port master lan0; done
    ${cable ? "ip addr flush dev agent0" : ""}
    ip link set ${guestCable} up
    ip link set lan0 up
    ip route add ${cniPods} via ${guest} dev node0
    ip route add ${target} dev node0
    ${cable ? `ip route add ${agent} dev node0` : ""}`;
  await must(networkArgv(layout, ["sh", "-ec", script]));
  if (cable) await must(["nsenter", `--net=${layout.agentNetns}`, "ip", "route", "add", node, "dev", "target0"]);
}
