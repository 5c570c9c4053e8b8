import { readConfigFields, invalidField, socketPath } from "../config-fields.ts";
import { type SshEndpoint, endpointFields, readEndpoint, readPath, readPort } from "./endpoint.ts";
import { type SshProxy, readProxy } from "./proxy.ts";
import { type ReverseTunnelConfig, readReverseTunnel } from "./reverse/config.ts";

export interface SshConfig extends SshEndpoint {
  /** Jump hosts to the target, each reached from the previous one. */
  readonly proxyJump: readonly SshEndpoint[];
  /** Proxy for the connection to the first machine. */
  readonly proxy?: SshProxy;
  /** Listener for a reverse tunnel: the first machine connects to graftlet, not the other way around. */
  readonly reverse?: ReverseTunnelConfig;
  /** `auto`, or the absolute path of the runtime's socket on the target. */
  readonly runtime: "auto" | { readonly socket: string };
  /** The kubelet's root directory on the target; absent if the node's `rootDir` applies. */
  readonly rootDir?: string;
  readonly sudo: "auto" | "never";
  /** `auto`: tunneled if the node is new on its target and the target supports it, otherwise isolated. */
  readonly network: "auto" | "isolated" | "tunneled" | "routed";
  /** Namespaces whose Services pods of a tunneled node reach; absent for all. */
  readonly serviceNamespaces?: readonly string[];
  /** Address at which pods reach the API server, instead of the cluster IP of the Service `kubernetes`. */
  readonly kubernetesService?: { readonly host: string; readonly port: number };
  /** Fields of the cri and docker providers, which validate their own fields. */
  readonly cri: unknown;
  readonly docker: unknown;
}

const fields = [
  ...endpointFields,
  "proxyJump",
  "proxy",
  "proxyPasswordFile",
  "reverse",
  "runtime",
  "rootDir",
  "sudo",
  "network",
  "serviceNamespaces",
  "kubernetesService",
  "cri",
  "docker",
];

/** Reads the ssh provider's `providerConfig`; opens no file.
 *  @throws CodedError invalid_argument, a sentence with the field and the remedy. */
export function readSshConfig(config: unknown): SshConfig {
  const given = readConfigFields(config, {
    provider: "ssh",
    known: fields,
    write: "write at least host, user, privateKeyFile and knownHostsFile",
  });
  const rootDir = given.rootDir === undefined ? undefined : readPath("providerConfig.rootDir", given.rootDir);
  const service = given.kubernetesService === undefined ? undefined : readServiceAddress(given.kubernetesService);
  const proxy = readProxy(given.proxy, given.proxyPasswordFile);
  const reverse = readReverseTunnel(given);
  const network = oneOf("network", given.network ?? "auto", ["auto", "isolated", "tunneled", "routed"]);
  const serviceNamespaces = readNamespaces(given.serviceNamespaces, network);
  return {
    ...readEndpoint(given, "providerConfig"),
    proxyJump: readJumpHosts(given.proxyJump ?? []),
    runtime: readRuntime(given.runtime ?? "auto"),
    sudo: oneOf("sudo", given.sudo ?? "auto", ["auto", "never"]),
    network,
    cri: given.cri,
    docker: given.docker,
    ...(proxy && { proxy }),
    ...(reverse && { reverse }),
    ...(serviceNamespaces && { serviceNamespaces }),
    ...(rootDir !== undefined && { rootDir }),
    ...(service !== undefined && { kubernetesService: service }),
  };
}

/** Maximum number of jump hosts. Connecting takes longer with each, as they are connected to one after another. */
const maxHops = 8;

function readJumpHosts(value: unknown): readonly SshEndpoint[] {
  if (!Array.isArray(value) || value.length > maxHops)
    throw invalidField(
      `providerConfig.proxyJump is not a list of at most ${maxHops} jump hosts: write each with host, user, privateKeyFile and knownHostsFile.`,
    );
  return value.map((hop: unknown, index) => {
    const at = `providerConfig.proxyJump[${index}]`;
    const write = "write host, user, privateKeyFile and knownHostsFile";
    return readEndpoint(readConfigFields(hop, { provider: "ssh", known: endpointFields, write, at }), at);
  });
}

function readNamespaces(value: unknown, network: SshConfig["network"]): readonly string[] | undefined {
  if (value === undefined) return undefined;
  const names: readonly unknown[] = Array.isArray(value) ? value : [undefined];
  if (
    !names.every(
      (name): name is string => typeof name === "string" && /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/.test(name),
    )
  )
    throw invalidField(
      `providerConfig.serviceNamespaces is ${JSON.stringify(value)}, not a list of namespaces: write them as [shop, stock].`,
    );
  if (network === "isolated" || network === "routed")
    throw invalidField(
      `providerConfig.serviceNamespaces applies to tunneled nodes only: set network: tunneled, or remove it.`,
    );
  return names;
}

function readRuntime(value: unknown): SshConfig["runtime"] {
  if (value === "auto") return "auto";
  const path = String(value).startsWith("unix:") ? socketPath(value) : undefined;
  if (path === undefined)
    throw invalidField(
      `providerConfig.runtime is ${JSON.stringify(value)}: write auto, or a socket of the target as unix:///run/containerd/containerd.sock.`,
    );
  return { socket: path };
}

function readServiceAddress(value: unknown): { readonly host: string; readonly port: number } {
  const [, host, port] = (typeof value === "string" ? /^\[?([\w.:-]+?)\]?:(\d{1,5})$/.exec(value) : null) ?? [];
  if (host === undefined)
    throw invalidField(
      `providerConfig.kubernetesService is ${JSON.stringify(value)}, not an address at which pods on the target reach the API server: write host:port.`,
    );
  return { host, port: readPort("providerConfig.kubernetesService", Number(port)) };
}

function oneOf<T extends string>(field: string, value: unknown, words: readonly T[]): T {
  const known = words.find((word) => word === value);
  if (known === undefined)
    throw invalidField(`providerConfig.${field} is ${JSON.stringify(value)}: write ${words.join(" or ")}.`);
  return known;
}
