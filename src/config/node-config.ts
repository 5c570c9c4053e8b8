import { isIP } from "node:net";
import { posix } from "node:path";
import { type ConfigIo, readText } from "./documents.ts";
import type { KubeletConfiguration } from "./kubelet-fields.ts";
import { isLabelValue, isNodeLabel, isQualifiedName, isSubdomain } from "./names.ts";
import { refuse } from "./refusal.ts";
import type { TextMap } from "./value-types.ts";

/** `node`: as `system:node:NAME`, by a client certificate; `serviceAccount`: as the Pod's service account. */
export type NodeIdentity = "node" | "serviceAccount";

/** Where the kubelet API is reached: at a Service of the Pod's namespace, at the Pod's own addresses, or at the machine's. */
export type KubeletAddress =
  | { readonly of: "service"; readonly service: string }
  | { readonly of: "podIP" }
  | { readonly of: "host" };

/** Everything that one node is started with, defaults filled and checked. Port, taints and the like are in `kubelet`. */
export interface NodeConfig {
  readonly nodeName: string;
  /** Name in the table of providers; not checked against it. */
  readonly provider: string;
  /** Fields of the provider's own; undefined when none are given. */
  readonly providerConfig: unknown;
  /** Undefined in a Pod: its service account asks for the node's identity, or is it. */
  readonly kubeconfig: string | undefined;
  /** A kubeconfig with which a client certificate is asked for where that of `kubeconfig` is not there yet. */
  readonly bootstrapKubeconfig: string | undefined;
  /** As whom the node speaks to the API server in a Pod. */
  readonly identity: NodeIdentity;
  /** A Secret of the Pod's namespace in which the node's certificates outlive the Pod. */
  readonly certificateSecret: string | undefined;
  /** Where the kubelet API is reached; `nodeIPs`, where given, win. */
  readonly kubeletAddress: KubeletAddress;
  /** Whether the Pod's service account approves the node's requests for the certificate of its kubelet API. */
  readonly approvesServing: boolean;
  readonly kubelet: KubeletConfiguration;
  /** Absolute, on the target. */
  readonly rootDir: string;
  /** Absolute, on graftlet's own machine. */
  readonly certDir: string;
  /** As --node-ip has them: none, one (perhaps 0.0.0.0 or ::, which ask for a family), or one of each family. */
  readonly nodeIPs: readonly string[];
  /** Labels to register with. */
  readonly nodeLabels: TextMap;
}

/** A node's name from --hostname-override or the host name: trimmed and lower-cased, as the kubelet does.
 *  @throws CodedError invalid_argument when no Node can have that name */
export function nodeNameFrom(setting: string, text: string): string {
  const name = text.trim().toLowerCase();
  if (isSubdomain(name)) return name;
  throw refuse(
    setting,
    text,
    "a node's name is lower-case letters, digits, - and . (at most 253); give one with --hostname-override",
  );
}

/** Addresses of --node-ip. @throws CodedError invalid_argument */
export function nodeIPsFrom(text: string): string[] {
  const addresses = text === "" ? [] : text.split(",").map((part) => part.trim());
  const families = addresses.map(isIP);
  const wrong = (remedy: string): Error => refuse("--node-ip", text, remedy);
  if (families.includes(0)) throw wrong("give an IP address, or one of each family separated by a comma");
  if (addresses.length > 2 || (addresses.length === 2 && families[0] === families[1]))
    throw wrong("give at most one address of each family");
  if (addresses.length === 2 && addresses.some(isUnspecified))
    throw wrong("give 0.0.0.0 or :: alone, or two real addresses");
  return addresses;
}

function isUnspecified(address: string): boolean {
  return address === "0.0.0.0" || /^[0:]+$/.test(address);
}

/** Refuses labels that a node may not give itself, as the kubelet does. @throws CodedError invalid_argument */
export function checkLabels(setting: string, labels: TextMap): void {
  for (const [key, value] of Object.entries(labels)) {
    const pair = `${key}=${value}`;
    if (!isQualifiedName(key) || !isLabelValue(value)) {
      throw refuse(
        setting,
        pair,
        "a label is a key and a value of at most 63 letters, digits, -, _ and ., the key with a DNS prefix and / if need be",
      );
    }
    if (!isNodeLabel(key)) {
      throw refuse(
        setting,
        pair,
        "a node may set labels of kubernetes.io only under node.kubernetes.io or kubelet.kubernetes.io; use a domain of your own",
      );
    }
  }
}

/** A directory's path without a slash at its end. @throws CodedError invalid_argument unless it is absolute */
export function absoluteDirectory(setting: string, path: string): string {
  if (!path.startsWith("/")) throw refuse(setting, path, "give an absolute path");
  const clean = posix.normalize(path);
  return clean.length > 1 ? clean.replace(/\/$/, "") : clean;
}

/** The kubeconfig to use, which must be there unless another bootstraps it; none in a Pod, where the service account serves.
 *  @throws CodedError invalid_argument */
export function kubeconfigFrom(
  io: ConfigIo,
  setting: string,
  path: string | undefined,
  bootstrap?: string,
): string | undefined {
  if (path === undefined || path === "") {
    if (bootstrap) throw refuse(setting, undefined, "is not given: name the file to write the node's credentials to");
    if (io.env["KUBERNETES_SERVICE_HOST"]) return undefined;
    throw refuse(
      setting,
      undefined,
      "is not given: graftlet needs an API server; give --kubeconfig with the path of a kubeconfig",
    );
  }
  if (bootstrap) readText(io, "--bootstrap-kubeconfig", bootstrap);
  else readText(io, setting, path);
  return path;
}
