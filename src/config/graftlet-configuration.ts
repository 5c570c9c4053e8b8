import { CodedError, codeOf, messageOf } from "../lib/errors.ts";
import { type ConfigDocument, decode } from "./decode.ts";
import { type ConfigIo, checkKind, readKind } from "./documents.ts";
import { checkPort } from "./field-checks.ts";
import {
  checkConfiguration,
  configurationKind,
  configurationWarnings,
  decodeConfiguration,
  defaultConfiguration,
} from "./kubelet-configuration.ts";
import {
  absoluteDirectory,
  daemonSetChoices,
  deadContainersOf,
  hasAccount,
  kubeconfigFrom,
  kubeletServingSigner,
  type NodeConfig,
  nodeNameFrom,
  outsidePod,
  type PublishedEndpoints,
} from "./node-config.ts";
import { isSubdomain } from "./names.ts";
import { checkAnnotations, checkConfiguredLabels, topologyKeys } from "./node-metadata.ts";
import { group, groups, taints } from "./object-types.ts";
import type { Options } from "./option-fields.ts";
import { refuse } from "./refusal.ts";
import { type Endpoint, endpointAt, listensOn, pageFrom } from "./process-endpoints.ts";
import { field, optional, pointer, type Shape, type ValueOf } from "./schema.ts";
import { bool, int32, ipAddress, oneOf, text, textMap, texts } from "./value-types.ts";

/** Checks the name of a signer. @returns the remedy for an invalid one.
 *  @see https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/#signers */
function checkSigner(name: string): string | undefined {
  const [domain = "", path = ""] = name.split(/\/(.*)/s);
  const isValid = name === "" || (domain.includes(".") && isSubdomain(domain) && isSubdomain(path));
  return isValid ? undefined : "write DOMAIN/NAME, such as example.com/serving";
}

const graftletConfigurationKind = { apiVersion: "graftlet.dev/v1alpha1", kind: "GraftletConfiguration" };

/** Settings that all nodes of the file share: they run in one Pod. */
const sharedFields = {
  nodes: field(groups("a list of nodes, each with a name"), []),
  fleet: optional(group),
  nodeObjects: optional(group),
  certificateSecret: field(text, ""),
  kubeletAddress: field(oneOf("service", "podIP", "host"), "host"),
  kubeletService: field(text, ""),
  approveServingCertificates: field(bool, false),
  servingCertificateSigner: field(text, "", { check: checkSigner }),
  endpointsOwner: field(text, ""),
  endpointsNamespaces: field(texts, []),
  egressTunnel: field(oneOf("auto", "none", "k3s", "rke2"), "auto"),
  healthzPort: pointer(int32, 10_248),
  healthzBindAddress: field(ipAddress, "127.0.0.1"),
  metricsPort: field(int32, 0),
  pagePort: field(int32, 0),
  pageAddress: field(ipAddress, "127.0.0.1"),
} satisfies Shape;

/** The fields that nodes of a GraftletConfiguration share. */
export type SharedSettings = ValueOf<typeof sharedFields>;

const nodeFields = {
  name: field(text, ""),
  provider: field(text, "cri"),
  providerConfig: optional(group),
  kubeletConfiguration: field(group, {}),
  kubeconfig: optional(text),
  identity: field(oneOf("node", "serviceAccount"), "node"),
  certificateSecret: field(text, ""),
  kubeletService: field(text, ""),
  rootDir: optional(text),
  labels: field(textMap({ sign: "=" }), {}),
  annotations: field(textMap({ sign: "=" }), {}),
  taints: optional(taints),
  daemonSets: optional(oneOf(...daemonSetChoices)),
  driverTopologyKeys: field(texts, []),
  port: optional(int32, { check: checkPort(false) }),
} satisfies Shape;

type NodeEntry = ValueOf<typeof nodeFields>;

/** An unsupported setting of one node, with the actual behaviour. */
export interface Warning {
  readonly node: string;
  readonly text: string;
}

/** One node of the file during parsing. */
interface Draft {
  readonly node: NodeConfig;
  readonly portIsGiven: boolean;
  readonly healthzIsGiven: boolean;
}

/** Contents of a GraftletConfiguration. */
export interface ConfiguredProcess {
  readonly nodes: NodeConfig[];
  readonly shared: SharedSettings;
  readonly health: Endpoint | undefined;
  readonly page: Endpoint | undefined;
}

/** Reads a GraftletConfiguration: its nodes, and the health endpoint and the page of their process, if enabled. Flags of the page take
 *  precedence.
 *  @param purpose as for `readNodes`. @throws CodedError invalid_argument */
export function readGraftletConfiguration(
  io: ConfigIo,
  path: string,
  options: Options,
  purpose: "run" | "remove" = "run",
): ConfiguredProcess {
  const shared = readShared(io, path);
  const { healthzPort: port, healthzBindAddress: address } = shared;
  const nodes = nodesIn(shared, { io, path, options, purpose });
  const page = pageFrom({ ...shared, ...given(options) }, nodes, `${path}: pagePort`);
  const health = endpointAt({ address, port }, nodes, `${path}: healthzPort`);
  if (health && page?.port === port)
    throw refuse(`${path}: pagePort`, port, "healthzPort uses that port; use another one");
  return { nodes, shared, health, page };
}

function given({ pagePort, pageAddress }: Options): Partial<Pick<SharedSettings, "pagePort" | "pageAddress">> {
  return { ...(pagePort !== undefined && { pagePort }), ...(pageAddress !== undefined && { pageAddress }) };
}

/** Reads the shared settings of a GraftletConfiguration, without decoding the nodes. @throws CodedError invalid_argument */
export function readShared(io: ConfigIo, path: string): SharedSettings {
  return decode(sharedFields, readKind(io, "--nodes", path, graftletConfigurationKind), { file: path });
}

/** Reads the nodes of a GraftletConfiguration. Each has its own root and certificate directory below the command line's. A node
 *  without a port gets the next free one from 10250 up; a node has a health port only if it sets one. @param purpose for `remove`,
 *  kubeconfigs and settings that exist only in a Pod are ignored, because removal uses no API server. @throws CodedError
 *  invalid_argument */
export function readNodes(
  io: ConfigIo,
  path: string,
  options: Options,
  purpose: "run" | "remove" = "run",
): NodeConfig[] {
  return nodesIn(readShared(io, path), { io, path, options, purpose });
}

interface NodesFile {
  readonly io: ConfigIo;
  readonly path: string;
  readonly options: Options;
  readonly purpose: "run" | "remove";
}

function nodesIn(document: SharedSettings, { io, path, options, purpose }: NodesFile): NodeConfig[] {
  if (document.nodes.length === 0 && !document.fleet) throw refuse(`${path}: nodes`, [], "list at least one node");
  const drafts = document.nodes.map((wire, index) =>
    draftOf(io, decode(nodeFields, wire, { file: path, path: `nodes[${index}]` }), {
      path,
      place: `nodes[${index}]`,
      options,
      shared: purpose === "run" ? document : undefined,
    }),
  );
  const nodes = withPorts(drafts);
  refuseDuplicates(path, nodes);
  for (const node of nodes) inNode(node.nodeName, () => checkConfiguration(node.kubelet));
  return nodes;
}

/** Decodes one node outside a file. @param where its place, and the settings that it shares with others.
 *  @throws CodedError invalid_argument, naming the path of the field. */
export function decodeNode(io: ConfigIo, wire: ConfigDocument, where: NodePlace): NodeConfig {
  const draft = draftOf(io, decode(nodeFields, wire, { file: where.path, path: where.place }), where);
  const [node = draft.node] = withPorts([draft]);
  checkConfiguration(node.kubelet);
  return node;
}

export function nodeWarnings(nodes: readonly NodeConfig[]): Warning[] {
  return nodes.flatMap(({ nodeName: node, kubelet }) =>
    [...configurationWarnings(kubelet), ...loggingWarnings(kubelet)].map((text) => ({ node, text })),
  );
}

/** Warnings for per-node log settings: the process's log is configured on its command line. */
function loggingWarnings({ logging }: NodeConfig["kubelet"]): string[] {
  const { format, verbosity, vmodule } = defaultConfiguration().logging;
  const ofTheProcess = (name: string, flag: string) =>
    `logging.${name} of a single node has no effect: all nodes of --nodes share one log; use ${flag}`;
  return [
    ...(logging.format === format ? [] : [ofTheProcess("format", "--logging-format")]),
    ...(logging.verbosity === verbosity ? [] : [ofTheProcess("verbosity", "-v")]),
    ...(logging.vmodule.length === vmodule.length ? [] : [ofTheProcess("vmodule", "--vmodule")]),
  ];
}

/** Position of a node in the file, or in its object. */
interface EntryPlace {
  readonly path: string;
  /** Such as `nodes[0]`. */
  readonly place: string;
}

interface NodePlace extends EntryPlace {
  readonly options: Options;
  /** Undefined for a removal. */
  readonly shared: SharedSettings | undefined;
}

function draftOf(io: ConfigIo, entry: NodeEntry, at: NodePlace): Draft {
  const { place } = at;
  const where = `${at.path}: ${place}`;
  const wire = checkKind(
    `${where}.kubeletConfiguration.`,
    { ...configurationKind, ...entry.kubeletConfiguration },
    configurationKind,
  );
  const kubelet = decodeConfiguration(wire, { file: at.path, path: `${place}.kubeletConfiguration` });
  const name = entry.name === "" ? undefined : nodeNameFrom(`${where}.name`, entry.name);
  if (name === undefined) throw refuse(`${where}.name`, undefined, "is not given; specify the node");
  checkConfiguredLabels(`${where}.labels`, entry.labels);
  checkAnnotations(`${where}.annotations`, entry.annotations);
  const below = (setting: string, directory: string): string =>
    absoluteDirectory(setting, `${absoluteDirectory(setting, directory)}/${name}`);
  return {
    portIsGiven: entry.port !== undefined || isGiven(wire["port"]),
    healthzIsGiven: isGiven(wire["healthzPort"]),
    node: {
      nodeName: name,
      provider: entry.provider,
      providerConfig: entry.providerConfig,
      kubeconfig: at.shared && kubeconfigOf(io, entry, at),
      bootstrapKubeconfig: undefined,
      identity: entry.identity,
      ...(at.shared ? inPod(io, at, entry, at.shared) : outsidePod),
      ...(at.shared && at.shared.egressTunnel !== "auto" && { egressTunnel: at.shared.egressTunnel }),
      kubelet: {
        ...kubelet,
        port: entry.port ?? kubelet.port,
        registerWithTaints: entry.taints ?? kubelet.registerWithTaints,
      },
      rootDir: entry.rootDir
        ? absoluteDirectory(`${where}.rootDir`, entry.rootDir)
        : below("--root-dir", at.options.rootDir),
      certDir: below("--cert-dir", at.options.certDir),
      nodeIPs: [],
      nodeLabels: entry.labels,
      ...(entry.daemonSets && { daemonSets: entry.daemonSets }),
      driverTopologyKeys: topologyKeys(`${where}.driverTopologyKeys`, entry.driverTopologyKeys),
      configured: { labels: entry.labels, annotations: entry.annotations, taints: entry.taints ?? [] },
      deadContainers: deadContainersOf(at.options),
    },
  };
}

function kubeconfigOf(
  io: ConfigIo,
  entry: NodeEntry,
  at: EntryPlace & { readonly options: Options },
): string | undefined {
  if (at.options.fleet !== undefined) return undefined;
  const setting = entry.kubeconfig ? `${at.path}: ${at.place}.kubeconfig` : "--kubeconfig";
  return kubeconfigFrom(io, setting, entry.kubeconfig ?? at.options.kubeconfig);
}

/** Settings that exist only in a Pod. @throws CodedError invalid_argument outside a Pod */
function inPod(
  io: ConfigIo,
  { path, place, options }: NodePlace,
  entry: NodeEntry,
  shared: SharedSettings,
): Pick<
  NodeConfig,
  "certificateSecret" | "sharedCertificateSecret" | "kubeletAddress" | "approvesServing" | "servingSigner" | "endpoints"
> {
  const { certificateSecret, kubeletAddress: of, approveServingCertificates, endpointsOwner: name } = shared;
  const service = entry.kubeletService || shared.kubeletService;
  const named = entry.kubeletService === "" ? "kubeletService" : `${place}.kubeletService`;
  const given = {
    certificateSecret,
    [`${place}.certificateSecret`]: entry.certificateSecret,
    [named]: service,
    ...(of === "service" && { kubeletAddress: of }),
    ...(approveServingCertificates && { approveServingCertificates }),
    endpointsOwner: name,
  };
  const [field, value] = Object.entries(given).find(([, value]) => value !== "") ?? [];
  if (field && !hasAccount(io, options))
    throw refuse(`${path}: ${field}`, value, "needs graftlet to run in a Pod; omit it elsewhere");
  if (name !== "" && entry.providerConfig?.["inPod"] === true)
    throw refuse(
      `${path}: endpointsOwner`,
      name,
      `${place} has inPod: the Pod uses the machine's network, on which ports 20000 to 29999 would be open; omit this`,
    );
  if ((of === "service") !== (service !== ""))
    throw refuse(
      `${path}: ${named}`,
      service || undefined,
      of === "service"
        ? "is not given; specify the Service of kubeletAddress: service"
        : "it requires kubeletAddress: service; set that too, or omit this",
    );
  return {
    ...certificateSecretsOf(entry, shared),
    kubeletAddress: of === "service" ? { of, service } : { of },
    approvesServing: approveServingCertificates,
    servingSigner: shared.servingCertificateSigner || kubeletServingSigner,
    ...(name !== "" && { endpoints: endpointsOf(name, shared, io) }),
  };
}

/** A node's own Secret takes precedence over the shared one, in which its certificates may still be. */
function certificateSecretsOf(
  { certificateSecret: own }: NodeEntry,
  { certificateSecret: shared }: SharedSettings,
): Pick<NodeConfig, "certificateSecret" | "sharedCertificateSecret"> {
  if (own === "") return { certificateSecret: shared || undefined };
  return { certificateSecret: own, ...(shared !== "" && { sharedCertificateSecret: shared }) };
}

function endpointsOf(
  owner: string,
  { endpointsNamespaces: namespaces }: SharedSettings,
  { env }: ConfigIo,
): PublishedEndpoints {
  const podNode = env["GRAFTLET_POD_NODE"];
  return { owner, namespaces, ...(podNode && { podNode }) };
}

function isGiven(wire: unknown): boolean {
  return wire !== undefined && wire !== null && wire !== 0;
}

function withPorts(drafts: readonly Draft[]): NodeConfig[] {
  const taken = new Set(drafts.filter((draft) => draft.portIsGiven).map((draft) => draft.node.kubelet.port));
  return drafts.map(({ node, portIsGiven, healthzIsGiven }) => {
    let port = node.kubelet.port;
    if (!portIsGiven) {
      while (taken.has(port)) port += 1;
      taken.add(port);
    }
    const healthzPort = healthzIsGiven ? node.kubelet.healthzPort : 0;
    return { ...node, kubelet: { ...node.kubelet, port, healthzPort } };
  });
}

/** Refuses two nodes with the same name, root directory or port. */
function refuseDuplicates(path: string, nodes: readonly NodeConfig[]): void {
  for (const [index, node] of nodes.entries()) {
    for (const earlier of nodes.slice(0, index)) {
      const where = `${path}: nodes[${index}]`;
      if (earlier.nodeName === node.nodeName)
        throw refuse(`${where}.name`, node.nodeName, "another node has that name; use unique names");
      if (earlier.rootDir === node.rootDir && earlier.provider === node.provider && sameTarget(earlier, node)) {
        throw refuse(
          `${where}.rootDir`,
          node.rootDir,
          `node ${earlier.nodeName} has that root directory; use separate directories`,
        );
      }
      const shared = listensOn(node).find((port) => listensOn(earlier).includes(port));
      if (shared !== undefined)
        throw refuse(`${where}.port`, shared, `node ${earlier.nodeName} listens on that port; use another one`);
    }
  }
}

function sameTarget(one: NodeConfig, other: NodeConfig): boolean {
  return JSON.stringify(one.providerConfig) === JSON.stringify(other.providerConfig);
}

/** Runs a check and prefixes its error with the node's name. */
function inNode(name: string, check: () => void): void {
  try {
    check();
  } catch (error) {
    throw new CodedError(codeOf(error), `node ${name}: ${messageOf(error)}`, { cause: error });
  }
}
