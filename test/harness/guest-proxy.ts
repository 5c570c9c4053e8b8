import { join } from "node:path";
import type { GuestNeighbour } from "../machines/guest-neighbour.ts";
import type { Cluster } from "./cluster.ts";
import { type ProxyMode, proxyArgv } from "./control-plane.ts";
import { addresses } from "./namespaces.ts";

/** The guest's name as a node of the cluster. */
const nodeName = "neighbour";

const unit = "kube-proxy";

const logFile = `/var/log/${unit}.log`;

/** Makes a guest a node without a kubelet, of which kube-proxy has what it needs. What its own kube-proxy does not lead to a Service goes
 *  nowhere: the cluster's node, its way to all else, would lead it there as well. */
export async function prepareProxy({ layout, tools, apply }: Cluster, guest: GuestNeighbour): Promise<void> {
  await guest.copyIn([tools.path(unit), kubeconfigOf(layout)]);
  await apply([
    {
      apiVersion: "v1",
      kind: "Node",
      metadata: { name: nodeName },
      spec: { unschedulable: true },
      status: { addresses: [{ type: "InternalIP", address: addresses.guest }] },
    },
  ]);
  const rules = `table ip alone {
    chain out { type filter hook postrouting priority 0; ip daddr ${addresses.services} oifname eth0 drop; }
  }`;
  await guest.must(["nft", rules]);
}

/** Runs the cluster's kube-proxy on a guest that is prepared for it, in this mode, in place of one that ran there before. */
export async function runProxy({ layout, tools }: Cluster, guest: GuestNeighbour, mode: ProxyMode): Promise<void> {
  await guest.must(["sh", "-c", `systemctl stop ${unit} 2>/dev/null || true`]);
  const argv = proxyArgv(tools, kubeconfigOf(layout), nodeName, mode);
  const output = `--property=StandardError=append:${logFile}`;
  await guest.must(["systemd-run", "--quiet", "--collect", `--unit=${unit}`, output, ...argv]);
}

/** The end of what kube-proxy has logged on a guest. */
export function proxyLog(guest: GuestNeighbour): Promise<string> {
  return guest.must(["tail", "-n", "15", logFile]);
}

/** Places to which the kernel of a guest leads connections to a Service's first address and port 80, by what its kube-proxy has made
 *  there: address and port, sorted. */
export async function destinations(
  guest: GuestNeighbour,
  mode: "ipvs" | "nftables",
  { name, address }: { readonly name: string; readonly address: string },
): Promise<string[]> {
  const table = mode === "ipvs" ? "cat /proc/net/ip_vs" : "nft list table ip kube-proxy";
  const rules = await guest.must(["sh", "-c", `${table} 2>/dev/null || true`]);
  if (mode === "ipvs") return inIpvs(rules, `${address}:80`);
  return inNftables(rules, name);
}

/** Destinations in the chain of a Service's port, among the rules of kube-proxy's table. */
function inNftables(rules: string, name: string): string[] {
  const chain = new RegExp(`chain service-\\w+-default/${name}/tcp/http \\{(.*?)\\n\\t\\}`, "s").exec(rules)?.[1] ?? "";
  return [...chain.matchAll(/ ([\d.]+) \. (\d+)/g)].map(([, host, port]) => `${host}:${port}`).toSorted();
}

/** Destinations of a virtual server that get new connections, out of what the kernel says of them: in hexadecimal. */
function inIpvs(table: string, server: string): string[] {
  const blocks = table.split(/^(?=TCP|UDP|SCTP)/m);
  const block = blocks.find((each) => decimal(/^TCP +(\S+)/.exec(each)?.[1]) === server) ?? "";
  const lines = block.matchAll(/^ {2}-> (\S+) +\w+ +(\d+) /gm);
  return [...lines].flatMap(([, host, weight]) => (Number(weight) > 0 ? [decimal(host)] : [])).toSorted();
}

/** `0A600001:0050` as `10.96.0.1:80`. */
function decimal(hex = ""): string {
  const [host = "", port = ""] = hex.split(":");
  return `${Buffer.from(host, "hex").join(".")}:${Number.parseInt(port, 16)}`;
}

function kubeconfigOf({ dir }: Cluster["layout"]): string {
  return join(dir, "proxy.kubeconfig");
}
