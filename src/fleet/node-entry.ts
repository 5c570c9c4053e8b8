import type { ConfigDocument } from "../config/decode.ts";
import type { FleetListener } from "../config/fleet-configuration.ts";
import type { GraftedNode, JumpHostSpec } from "./grafted-node.ts";
import type { LoginFiles } from "./login-files.ts";

export interface NodeEntryInput {
  /** The Node's providerID, which no cloud controller manager recognizes. */
  readonly providerID: string;
  /** Port of the kubelet API in graftlet's Pod. */
  readonly port: number;
  /** The Service of the kubelet API; undefined if the Pod's own address is used. */
  readonly kubeletService: string | undefined;
  /** The files of the machine's login and of each jump host's. */
  readonly logins: readonly LoginFiles[];
  /** The listener to which the machine connects, and the file of its public keys; undefined if graftlet connects to the machine. */
  readonly reverse: (FleetListener & { readonly authorizedKeysFile: string }) | undefined;
}

/** Converts an object to a node of a GraftletConfiguration, with the defaults of the chart's nodes: the label and the taint
 *  `graftlet.dev/target`, the label that excludes it from load balancers, and a certificate from the cluster's signer. Pure. */
export function nodeEntry({ metadata: { name }, spec }: GraftedNode, input: NodeEntryInput): ConfigDocument {
  const [login = {}, ...hops] = input.logins;
  const { proxyJump = [], secretRef: _secret, reverse: _keys, ...ssh } = spec.ssh;
  const target = { key: "graftlet.dev/target", value: name, effect: "NoSchedule" };
  const reserved: Record<string, string> = {};
  for (const [resource, amount] of Object.entries(spec.reserved ?? {})) reserved[resource] = String(amount);
  return {
    name,
    provider: "ssh",
    providerConfig: {
      user: "root",
      // In known_hosts, a machine without an address has the object's name.
      ...(input.reverse && { host: name, reverse: input.reverse }),
      ...ssh,
      ...login,
      network: spec.network ?? "tunneled",
      ...(proxyJump.length > 0 && { proxyJump: proxyJump.map((hop, index) => jumpHost(hop, hops[index])) }),
    },
    port: input.port,
    ...(input.kubeletService !== undefined && { kubeletService: input.kubeletService }),
    ...(spec.rootDir !== undefined && { rootDir: spec.rootDir }),
    ...(spec.daemonSets !== undefined && { daemonSets: spec.daemonSets }),
    ...(spec.driverTopologyKeys && { driverTopologyKeys: spec.driverTopologyKeys }),
    labels: {
      "graftlet.dev/target": name,
      "node.kubernetes.io/exclude-from-external-load-balancers": "",
      ...spec.labels,
    },
    annotations: spec.annotations ?? {},
    taints: [...(spec.defaultTaint === false ? [] : [target]), ...(spec.taints ?? [])],
    kubeletConfiguration: {
      providerID: input.providerID,
      serverTLSBootstrap: true,
      ...(spec.reserved && { systemReserved: reserved }),
      ...spec.kubeletConfiguration,
    },
  };
}

function jumpHost({ secretRef: _secret, ...hop }: JumpHostSpec, login: LoginFiles | undefined): object {
  return { user: "root", ...hop, ...login };
}
