import { isIP } from "node:net";
import { posix } from "node:path";
import { goDuration } from "../lib/go-duration.ts";
import type { CredentialProviders } from "./credential-providers.ts";
import { type ConfigIo, readSettingFile } from "./documents.ts";
import type { Taint } from "../objects.ts";
import type { KubeletConfiguration } from "./kubelet-fields.ts";
import { isLabelValue, isNodeLabel, isQualifiedName, isSubdomain } from "./names.ts";
import { refuse } from "./refusal.ts";
import type { TextMap } from "./value-types.ts";

/** Identity: `node` is `system:node:NAME` with a client certificate; `serviceAccount` is the Pod's service account. */
export type IdentitySource = "node" | "serviceAccount";

/** Address of the kubelet API: a Service in the Pod's namespace, the Pod's own addresses, or the machine's. */
export type KubeletAddress =
  | { readonly of: "service"; readonly service: string }
  | { readonly of: "podIP" }
  | { readonly of: "host" };

/** Pods of DaemonSets that a node runs. */
export const daemonSetChoices = ["none", "selected", "all"] as const;

/** All settings of one node, with defaults applied and checked. Port, taints and so on are in `kubelet`. */
export interface NodeConfig {
  readonly nodeName: string;
  /** Name in the table of providers; not checked here. */
  readonly provider: string;
  /** The provider's own fields; undefined if not given. */
  readonly providerConfig: unknown;
  /** Undefined in a Pod: its service account requests the node's identity, or is the identity. */
  readonly kubeconfig: string | undefined;
  /** Kubeconfig that requests a client certificate while the file of `kubeconfig` does not exist. */
  readonly bootstrapKubeconfig: string | undefined;
  /** Identity with which the node uses the API server in a Pod. */
  readonly identity: IdentitySource;
  /** A Secret in the Pod's namespace that preserves the node's certificates beyond the Pod. */
  readonly certificateSecret: string | undefined;
  /** The Secret that all nodes of the process shared before, from which the node's certificates are copied. */
  readonly sharedCertificateSecret?: string;
  /** Address of the kubelet API; `nodeIPs`, if given, take precedence. */
  readonly kubeletAddress: KubeletAddress;
  /** True if the Pod's service account approves the node's requests for serving certificates. */
  readonly approvesServing: boolean;
  /** Signer of the kubelet API's certificate. */
  readonly servingSigner: string;
  /** Publishes this node's pods as endpoints through the Pod's service account, if the target is isolated; absent if disabled. */
  readonly endpoints?: PublishedEndpoints;
  /** Tunnel from the API server to the kubelet API; undefined to detect it from the API server's version. */
  readonly egressTunnel?: "none" | "k3s" | "rke2";
  /** Pods of DaemonSets that run here; undefined to use the Node's annotation or its network. */
  readonly daemonSets?: (typeof daemonSetChoices)[number];
  /** Keys, or domains that end with a slash, with which storage drivers on the target may label the Node, in addition to keys under
   *  their own names. */
  readonly driverTopologyKeys: readonly string[];
  /** Port of the kubelet API at the Node's addresses, if it differs from the one that graftlet listens on. */
  readonly advertisedPort?: number;
  readonly kubelet: KubeletConfiguration;
  /** Absolute path on the target. */
  readonly rootDir: string;
  /** Absolute path on graftlet's own machine. */
  readonly certDir: string;
  /** Values of --node-ip: none, one (0.0.0.0 or :: select a family), or one of each family. */
  readonly nodeIPs: readonly string[];
  /** --cloud-provider=external. */
  readonly cloudProvider?: boolean;
  readonly nodeLabels: TextMap;
  /** Labels, annotations and taints that are reconciled after registration; absent for nodes of a command line. */
  readonly configured?: { readonly labels: TextMap; readonly annotations: TextMap; readonly taints: readonly Taint[] };
  readonly deadContainers: DeadContainers;
  /** Credential provider plugins; read only to run the node. */
  readonly credentialProviders?: CredentialProviders;
}

/** Kubernetes' own signer of kubelets' serving certificates.
 *  @see https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/#kubernetes-signers */
export const kubeletServingSigner = "kubernetes.io/kubelet-serving";

/** Settings of a node when graftlet runs outside a Pod. */
export const outsidePod = {
  certificateSecret: undefined,
  kubeletAddress: { of: "host" },
  approvesServing: false,
  servingSigner: kubeletServingSigner,
} as const;

export interface PublishedEndpoints {
  /** The ClusterRole that owns the endpoints. */
  readonly owner: string;
  /** Namespaces whose Services get endpoints; empty for all. */
  readonly namespaces: readonly string[];
  /** The cluster node of graftlet's Pod, by which kube-proxy recognizes local endpoints. */
  readonly podNode?: string;
}

/** Limits of dead containers: --minimum-container-ttl-duration, --maximum-dead-containers-per-container and --maximum-dead-containers. */
export interface DeadContainers {
  readonly minAgeMs: number;
  /** Negative for no limit. */
  readonly perContainer: number;
  readonly all: number;
}

/** The limits that a command line sets for each of its nodes. @throws CodedError invalid_argument for a negative age */
export function deadContainersOf(options: {
  readonly minimumContainerTTL: number;
  readonly maximumDeadContainersPerContainer: number;
  readonly maximumDeadContainers: number;
}): DeadContainers {
  const { minimumContainerTTL: age } = options;
  if (age < 0) throw refuse("--minimum-container-ttl-duration", goDuration(age), "use a value of 0 or more");
  return {
    minAgeMs: options.minimumContainerTTL,
    perContainer: options.maximumDeadContainersPerContainer,
    all: options.maximumDeadContainers,
  };
}

/** A node's name from --hostname-override or the host name, trimmed and lower-cased as by the kubelet. @throws CodedError
 *  invalid_argument for an invalid Node name */
export function nodeNameFrom(setting: string, text: string): string {
  const name = text.trim().toLowerCase();
  if (isSubdomain(name)) return name;
  throw refuse(
    setting,
    text,
    "a node's name is lower-case letters, digits, - and . (at most 253); set one with --hostname-override",
  );
}

/** Parses the addresses of --node-ip. @throws CodedError invalid_argument */
export function nodeIPsFrom(text: string): string[] {
  const addresses = text === "" ? [] : text.split(",").map((part) => part.trim());
  const families = addresses.map(isIP);
  const wrong = (remedy: string): Error => refuse("--node-ip", text, remedy);
  if (families.includes(0)) throw wrong("use an IP address, or one of each family separated by a comma");
  if (addresses.length > 2 || (addresses.length === 2 && families[0] === families[1]))
    throw wrong("use at most one address of each family");
  if (addresses.length === 2 && addresses.some(isUnspecified))
    throw wrong("use 0.0.0.0 or :: alone, or two specific addresses");
  return addresses;
}

function isUnspecified(address: string): boolean {
  return address === "0.0.0.0" || /^[0:]+$/.test(address);
}

/** Refuses labels that a node may not set on itself, as the kubelet does. @throws CodedError invalid_argument */
export function checkLabels(setting: string, labels: TextMap): void {
  for (const [key, value] of Object.entries(labels)) {
    const pair = `${key}=${value}`;
    if (!isQualifiedName(key) || !isLabelValue(value)) {
      throw refuse(
        setting,
        pair,
        "a label is a key and a value of at most 63 letters, digits, -, _ and ., the key with an optional DNS prefix and /",
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

/** A directory's path without a trailing slash. @throws CodedError invalid_argument for a relative path */
export function absoluteDirectory(setting: string, path: string): string {
  if (!path.startsWith("/")) throw refuse(setting, path, "use an absolute path");
  const clean = posix.normalize(path);
  return clean.length > 1 ? clean.replace(/\/$/, "") : clean;
}

/** True if graftlet has an account of the release's: in a Pod, and with --fleet. */
export function hasAccount({ env }: ConfigIo, { fleet }: { readonly fleet?: string | undefined }): boolean {
  return fleet !== undefined || Boolean(env["KUBERNETES_SERVICE_HOST"]);
}

/** The kubeconfig to use. It must exist unless another one bootstraps it; in a Pod there is none, and the service account is used.
 *  @throws CodedError invalid_argument */
export function kubeconfigFrom(
  io: ConfigIo,
  setting: string,
  path: string | undefined,
  bootstrap?: string,
): string | undefined {
  if (path === undefined || path === "") {
    if (bootstrap)
      throw refuse(setting, undefined, "is not given: specify the file to write the node's credentials to");
    if (io.env["KUBERNETES_SERVICE_HOST"]) return undefined;
    throw refuse(
      setting,
      undefined,
      "is not given: graftlet needs an API server; set --kubeconfig to the path of a kubeconfig",
    );
  }
  if (bootstrap) readSettingFile(io, "--bootstrap-kubeconfig", bootstrap);
  else readSettingFile(io, setting, path);
  return path;
}
