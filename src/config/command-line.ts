import { isRecord } from "../lib/record.ts";
import { readArguments, flagsOf } from "./arguments.ts";
import { withCredentialProviders } from "./credential-providers.ts";
import { defaultsOf, unsupportedWarnings, withValue } from "./decode.ts";
import { type ConfigIo, readDocument } from "./documents.ts";
import { flagValues } from "./flag-values.ts";
import { parseEnrol } from "./enrol-command.ts";
import { parseJoin, refuseFleet } from "./join-command.ts";
import { fleetOfPod, readFleet, readMetricsEndpoint, readNodeObjects } from "./fleet-configuration.ts";
import { nodeWarnings, readGraftletConfiguration, readNodes } from "./graftlet-configuration.ts";
import { pageFrom } from "./process-endpoints.ts";
import {
  doctorHelpText,
  helpText,
  leaveHelpText,
  removeHelpText,
  statusHelpText,
  textFor,
  versionText,
} from "./help.ts";
import {
  applyFlags,
  checkConfiguration,
  configurationDefaults,
  configurationWarnings,
  defaultConfiguration,
  mergeDropIns,
  readConfiguration,
} from "./kubelet-configuration.ts";
import { kubeletFields, type KubeletConfiguration } from "./kubelet-fields.ts";
import {
  absoluteDirectory,
  checkLabels,
  deadContainersOf,
  kubeconfigFrom,
  type NodeConfig,
  nodeIPsFrom,
  nodeNameFrom,
  outsidePod,
} from "./node-config.ts";
import { doctorFields, leaveFields, type Options, optionFields, removeFields, statusFields } from "./option-fields.ts";
import { isSubdomain } from "./names.ts";
import type { OptionsOf, ParseResult } from "./parse-result.ts";
import { refuse } from "./refusal.ts";
import { fieldsOf } from "./schema.ts";
import { topologyKeys } from "./node-metadata.ts";

type Flags = ReadonlyMap<string, unknown>;

/** Flags that apply to all nodes of --nodes; every other flag describes one node. */
const sharedFlags = new Set([
  "nodes",
  "fleet",
  "kubeconfig",
  "root-dir",
  "cert-dir",
  "page-port",
  "page-address",
  "status-socket",
  "v",
  "vmodule",
  "logging-format",
  "log-flush-frequency",
  "minimum-container-ttl-duration",
  "maximum-dead-containers-per-container",
  "maximum-dead-containers",
  "image-credential-provider-config",
  "image-credential-provider-bin-dir",
]);

/** `graftlet doctor`: the same flags; examines all nodes of the --nodes file and all GraftedNodes, or only the one named by --node. */
function parseDoctor(argv: readonly string[], io: ConfigIo): ParseResult {
  const ofPod = argv[0] === "pod";
  const file = ofPod && argv[1]?.startsWith("-") === false ? argv[1] : undefined;
  const flags = argv.slice(file === undefined ? Number(ofPod) : 2);
  const read = readArguments(flags, flagsOf(optionFields, kubeletFields, doctorFields));
  if (read.kind === "help") return { kind: "help", text: doctorHelpText() };
  if (read.kind === "version") return { kind: "version", text: versionText() };
  const { values } = read;
  if (ofPod && file === undefined)
    throw refuse("doctor pod", undefined, "needs a file: set the path of a pod's manifest");
  const options = optionsFrom(values);
  refuseFleet(options);
  return {
    kind: "doctor",
    ...nodesWithProcess(io, options, values),
    kubeconfig: options.kubeconfig ? kubeconfigFrom(io, "--kubeconfig", options.kubeconfig) : undefined,
    output: values.get("output") === "json" ? "json" : "text",
    manifest: file === undefined ? undefined : readDocument(io, "doctor pod", file),
  };
}

/** The nodes that a command applies to, with the endpoints of their process. Reads the --nodes file once. */
function nodesWithProcess(
  io: ConfigIo,
  options: Options,
  values: Flags,
): Pick<OptionsOf<"doctor">, "nodes" | "fleet" | "process"> {
  const socket = statusSocket(io, options);
  if (options.nodes === undefined) {
    const nodes = [nodeOfFlags(io, options, values)];
    const page = pageFrom(options, nodes, "--page-port");
    return { nodes, fleet: undefined, process: { health: undefined, page, statusSocket: socket } };
  }
  const { nodes, shared, health, page } = readGraftletConfiguration(io, options.nodes, options, "remove");
  const process = { health, page, statusSocket: socket };
  const name = values.get("node") as string | undefined;
  const config = fleetOfPod(io, options, shared);
  if (!config || nodes.some(({ nodeName }) => nodeName === name))
    return { nodes: chosenOf(nodes, values), fleet: undefined, process };
  // Only the API server knows whether an object of that name exists.
  return { nodes: name === undefined ? nodes : [], fleet: { config, node: name }, process };
}

/** `graftlet status`: accepts the process's flags, and uses those that determine its socket. */
function parseStatus(argv: readonly string[], io: ConfigIo): ParseResult {
  const read = readArguments(argv, flagsOf(optionFields, kubeletFields, statusFields));
  if (read.kind === "help") return { kind: "help", text: statusHelpText() };
  if (read.kind === "version") return { kind: "version", text: versionText() };
  const socket = statusSocket(io, optionsFrom(read.values));
  if (socket === undefined) throw refuse("--status-socket", "", "set the socket of the running graftlet");
  const node = read.values.get("node") as string | undefined;
  return { kind: "status", socket, node, output: read.values.get("output") === "json" ? "json" : "text" };
}

/** Path of the status socket: from the flag, the environment, or next to the certificates. @returns undefined if it is disabled. */
function statusSocket({ env }: ConfigIo, { statusSocket: given, certDir }: Options): string | undefined {
  const path = given ?? env["GRAFTLET_STATUS_SOCKET"] ?? `${absoluteDirectory("--cert-dir", certDir)}/status.sock`;
  return path === "" ? undefined : absoluteDirectory("--status-socket", path);
}

/** Parses a kubelet command line: flags override drop-in files, which override the --config file, which overrides the defaults.
 *  Reads files, but opens no connections. @param argv the arguments after the program's name. @throws CodedError invalid_argument,
 *  naming the setting, its value and the remedy.
 *  @see https://kubernetes.io/docs/reference/command-line-tools-reference/kubelet/ */
export function parseCommandLine(argv: readonly string[], io: ConfigIo): ParseResult {
  if (argv[0] === "remove") return parseRemove(argv.slice(1), io);
  if (argv[0] === "leave") return parseLeave(argv.slice(1), io);
  if (argv[0] === "enrol") return parseEnrol(argv.slice(1), io);
  if (argv[0] === "doctor") return parseDoctor(argv.slice(1), io);
  if (argv[0] === "status") return parseStatus(argv.slice(1), io);
  if (argv[0] === "help" || argv[0] === "completion") return { kind: "help", text: textFor(argv[0], argv[1]) };
  const known = flagsOf(optionFields, kubeletFields);
  const read = readArguments(argv, known);
  if (read.kind === "help") return { kind: "help", text: helpText() };
  if (read.kind === "version") return { kind: "version", text: versionText() };
  const options = optionsFrom(read.values);
  const flags = flagValues(known, read.values);
  if (options.fleet !== undefined)
    return {
      ...parseJoin(io, options.fleet, options, (own, path, others) => ({
        ...severalNodes(own, path, others, read.values),
        flags,
      })),
      logging: processFlags(read.values, "--fleet; set it in the GraftedNode").logging,
    };
  if (options.nodes !== undefined) return { ...severalNodes(io, options.nodes, options, read.values), flags };
  const described = oneNode(io, options, read.values);
  const hasCredentials = options.kubeconfig || options.bootstrapKubeconfig || io.env["KUBERNETES_SERVICE_HOST"];
  const alone = !hasCredentials && hasStaticPods(described);
  const kubeconfig = alone
    ? undefined
    : kubeconfigFrom(io, "--kubeconfig", options.kubeconfig, options.bootstrapKubeconfig);
  const node = { ...described, kubeconfig };
  return {
    kind: "run",
    flags,
    nodes: withCredentialProviders(io, options, [node]),
    logging: node.kubelet.logging,
    defaults: configurationDefaults([node.kubelet]),
    warnings: [
      ...unsupportedWarnings(optionFields, options, defaultsOf(optionFields)),
      ...configurationWarnings(node.kubelet),
      ...(alone ? [standaloneWarning] : []),
    ].map((text) => ({ node: node.nodeName, text })),
    several: false,
    health: undefined,
    page: pageFrom(options, [node], "--page-port"),
    statusSocket: statusSocket(io, options),
  };
}

const standaloneWarning =
  "--kubeconfig is not set: the node runs standalone, with static pods only and without an API server";

function hasStaticPods({ kubelet }: NodeConfig): boolean {
  return kubelet.staticPodPath !== "" || kubelet.staticPodURL !== "";
}

/** `graftlet remove`: the flags that the node was started with identify it and its files. */
function parseRemove(argv: readonly string[], io: ConfigIo): ParseResult {
  const read = readArguments(argv, flagsOf(optionFields, kubeletFields, removeFields));
  if (read.kind === "help") return { kind: "help", text: removeHelpText() };
  if (read.kind === "version") return { kind: "version", text: versionText() };
  const options = optionsFrom(read.values);
  refuseFleet(options);
  const nodes = chosenNodes(io, options, read.values);
  const [node, second] = nodes;
  if (!node || second) throw refuse("--node", undefined, `is not given: ${nameOne(read.values, nodes)}`);
  return { kind: "remove", node, yes: read.values.get("yes") === true };
}

/** `graftlet leave`: the same flags; with --nodes, all nodes of the file leave, or only the one named by --node. */
function parseLeave(argv: readonly string[], io: ConfigIo): ParseResult {
  const read = readArguments(argv, flagsOf(optionFields, kubeletFields, leaveFields));
  if (read.kind === "help") return { kind: "help", text: leaveHelpText() };
  if (read.kind === "version") return { kind: "version", text: versionText() };
  const options = optionsFrom(read.values);
  refuseFleet(options);
  const deployment = read.values.get("deployment") as string | undefined;
  if (deployment !== undefined && read.values.has("node"))
    throw refuse("--deployment", deployment, "it stops graftlet for all nodes of the file; omit --node, or this flag");
  const [name = "", namespace, ...more] = deployment?.split("/").reverse() ?? [];
  if (deployment !== undefined && (![name, namespace ?? name].every(isSubdomain) || more.length > 0))
    throw refuse("--deployment", deployment, "use NAME or NAMESPACE/NAME");
  if (deployment !== undefined && namespace === undefined && options.kubeconfig)
    throw refuse("--deployment", deployment, "it has no namespace, and graftlet is not in a Pod; use NAMESPACE/NAME");
  return {
    kind: "leave",
    nodes: chosenNodes(io, options, read.values),
    fleet: read.values.has("node") ? undefined : fleetOfPod(io, options),
    kubeconfig: kubeconfigFrom(io, "--kubeconfig", options.kubeconfig),
    deployment: deployment === undefined ? undefined : { namespace, name },
    timeoutMs: (read.values.get("timeout") as number | undefined) ?? defaultsOf(leaveFields).timeout,
    yes: read.values.get("yes") === true,
  };
}

/** The nodes that a command applies to: that of the flags, all of the --nodes file, or the one selected by --node. */
function chosenNodes(io: ConfigIo, options: Options, values: Flags): readonly NodeConfig[] {
  return options.nodes === undefined
    ? [nodeOfFlags(io, options, values)]
    : chosenOf(readNodes(io, options.nodes, options, "remove"), values);
}

/** All nodes of a file, or the one named by --node. */
function chosenOf(nodes: readonly NodeConfig[], values: Flags): readonly NodeConfig[] {
  const name = values.get("node");
  if (name === undefined) return nodes;
  const chosen = nodes.filter(({ nodeName }) => nodeName === name);
  if (chosen.length > 0) return chosen;
  throw refuse("--node", name, nameOne(values, nodes));
}

function nodeOfFlags(io: ConfigIo, options: Options, values: Flags): NodeConfig {
  const name = values.get("node");
  if (name !== undefined)
    throw refuse(
      "--node",
      name,
      "it selects a node of the --nodes file; set the name of a single node with --hostname-override",
    );
  const node = oneNode(io, options, values);
  // Only the ssh provider has a host, so --provider-config alone is unambiguous.
  const isSsh = !values.has("provider") && isRecord(node.providerConfig) && node.providerConfig["host"] !== undefined;
  return isSsh ? { ...node, provider: "ssh" } : node;
}

function nameOne(values: Flags, nodes: readonly NodeConfig[]): string {
  const names = nodes.map(({ nodeName }) => nodeName).join(", ");
  return `use one of the nodes in ${String(values.get("nodes"))}: ${names}`;
}

function optionsFrom(flags: Flags): Options {
  let options = defaultsOf(optionFields);
  for (const [path, field] of fieldsOf(optionFields)) {
    if (field.flag !== undefined && flags.has(field.flag)) options = withValue(options, path, flags.get(field.flag));
  }
  return options;
}

/** The settings of a process with several nodes. @param instead ends the message about the flag of a single node. */
function processFlags(flags: Flags, instead: string): KubeletConfiguration {
  const single = [...flags.keys()].find((flag) => !sharedFlags.has(flag));
  if (single !== undefined)
    throw refuse(`--${single}`, undefined, `describes a single node and cannot be used with ${instead}`);
  const ofProcess = applyFlags(defaultConfiguration(), flags);
  checkConfiguration(ofProcess);
  return ofProcess;
}

function severalNodes(
  io: ConfigIo,
  path: string,
  options: Options,
  flags: Flags,
): Omit<Extract<ParseResult, { kind: "run" }>, "flags"> {
  const ofProcess = processFlags(flags, "--nodes; set it for each node in that file");
  const read = readGraftletConfiguration(io, path, options);
  const { nodes, shared, health, page } = read;
  return {
    kind: "run",
    nodes: withCredentialProviders(io, options, nodes),
    fleet: readFleet(io, path, shared, options),
    nodeObjects: readNodeObjects(io, path, shared),
    several: true,
    health,
    page,
    metrics: readMetricsEndpoint(path, read),
    logging: ofProcess.logging,
    statusSocket: statusSocket(io, options),
    defaults: configurationDefaults(nodes.map(({ kubelet }) => kubelet)),
    warnings: nodeWarnings(nodes),
  };
}

/** The node described by flags, without its kubeconfig. */
function oneNode(io: ConfigIo, options: Options, flags: Flags): NodeConfig {
  const kubelet = configurationFrom(io, options, flags);
  checkLabels("--node-labels", options.nodeLabels);
  const [setting, name] =
    options.hostnameOverride === "" ? ["host name", io.hostname()] : ["--hostname-override", options.hostnameOverride];
  const providerFile = options.providerConfig;
  return {
    nodeName: nodeNameFrom(setting, name),
    provider: options.provider,
    providerConfig: providerFile === undefined ? undefined : readDocument(io, "--provider-config", providerFile),
    kubeconfig: undefined,
    bootstrapKubeconfig: options.bootstrapKubeconfig || undefined,
    identity: "node",
    ...outsidePod,
    kubelet,
    rootDir: absoluteDirectory("--root-dir", options.rootDir),
    certDir: absoluteDirectory("--cert-dir", options.certDir),
    nodeIPs: nodeIPsFrom(options.nodeIP),
    ...(options.cloudProvider === "external" && { cloudProvider: true }),
    nodeLabels: options.nodeLabels,
    ...(options.daemonSets && { daemonSets: options.daemonSets }),
    driverTopologyKeys: topologyKeys("--driver-topology-keys", options.driverTopologyKeys),
    deadContainers: deadContainersOf(options),
  };
}

function configurationFrom(io: ConfigIo, options: Options, flags: Flags): KubeletConfiguration {
  const { config, configDir } = options;
  const fromFile = config ? readConfiguration(io, config) : defaultConfiguration();
  const fromFiles = configDir ? mergeDropIns(io, configDir, fromFile) : fromFile;
  const kubelet = applyFlags(fromFiles, flags);
  checkConfiguration(kubelet);
  return kubelet;
}
