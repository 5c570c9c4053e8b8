import { readArguments, flagsOf } from "./arguments.ts";
import { defaultsOf, unservedWarnings, withValue } from "./decode.ts";
import { type ConfigIo, readDocument } from "./documents.ts";
import { nodeWarnings, readNodes } from "./graftlet-configuration.ts";
import { helpText, versionText } from "./help.ts";
import {
  applyFlags,
  checkConfiguration,
  configurationWarnings,
  defaultConfiguration,
  mergeDropIns,
  readConfiguration,
} from "./kubelet-configuration.ts";
import { kubeletFields, type KubeletConfiguration } from "./kubelet-fields.ts";
import {
  absoluteDirectory,
  checkLabels,
  kubeconfigFrom,
  type NodeConfig,
  nodeIPsFrom,
  nodeNameFrom,
} from "./node-config.ts";
import { type Options, optionFields } from "./option-fields.ts";
import { refuse } from "./refusal.ts";
import { fieldsOf } from "./schema.ts";

/** What a command line asks for. */
export type ParseResult =
  | { readonly kind: "help"; readonly text: string }
  | { readonly kind: "version"; readonly text: string }
  | {
      readonly kind: "run";
      readonly nodes: readonly NodeConfig[];
      /** The kubelet's -v. */
      readonly verbosity: number;
      /** A line each: settings of the kubelet that are not served yet, with what happens instead. */
      readonly warnings: readonly string[];
    };

type Flags = ReadonlyMap<string, unknown>;

/** Flags that hold for all nodes of --nodes; every other describes one node. */
const sharedFlags = new Set([
  "nodes",
  "kubeconfig",
  "root-dir",
  "cert-dir",
  "v",
  "logging-format",
  "log-flush-frequency",
]);

/** Reads a command line in the kubelet's words: flags win over drop-in files, those over the file of --config, that over the
 *  defaults. Reads files, opens nothing else.
 *  @param argv the arguments after the program's name.
 *  @throws CodedError invalid_argument: one sentence that names the setting, its value and the remedy.
 *  @see https://kubernetes.io/docs/reference/command-line-tools-reference/kubelet/ */
export function parseCommandLine(argv: readonly string[], io: ConfigIo): ParseResult {
  const read = readArguments(argv, flagsOf(optionFields, kubeletFields));
  if (read.kind === "help") return { kind: "help", text: helpText() };
  if (read.kind === "version") return { kind: "version", text: versionText() };
  const options = optionsFrom(read.values);
  if (options.nodes !== undefined) return severalNodes(io, options.nodes, options, read.values);
  const node = oneNode(io, options, read.values);
  return {
    kind: "run",
    nodes: [node],
    verbosity: node.kubelet.logging.verbosity,
    warnings: [
      ...unservedWarnings(optionFields, options, defaultsOf(optionFields)),
      ...configurationWarnings(node.kubelet),
    ],
  };
}

function optionsFrom(flags: Flags): Options {
  let options = defaultsOf(optionFields);
  for (const [path, field] of fieldsOf(optionFields)) {
    if (field.flag !== undefined && flags.has(field.flag)) options = withValue(options, path, flags.get(field.flag));
  }
  return options;
}

function severalNodes(io: ConfigIo, path: string, options: Options, flags: Flags): ParseResult {
  const single = [...flags.keys()].find((flag) => !sharedFlags.has(flag));
  if (single !== undefined) {
    throw refuse(
      `--${single}`,
      undefined,
      "describes a single node and does not go with --nodes; say it of each node in that file",
    );
  }
  const nodes = readNodes(io, path, options);
  return {
    kind: "run",
    nodes,
    verbosity: applyFlags(defaultConfiguration(), flags).logging.verbosity,
    warnings: nodeWarnings(nodes),
  };
}

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
    kubeconfig: kubeconfigFrom(io, "--kubeconfig", options.kubeconfig, options.bootstrapKubeconfig),
    bootstrapKubeconfig: options.bootstrapKubeconfig || undefined,
    identity: "node",
    certificateSecret: undefined,
    kubeletAddress: { of: "host" },
    kubelet,
    rootDir: absoluteDirectory("--root-dir", options.rootDir),
    certDir: absoluteDirectory("--cert-dir", options.certDir),
    nodeIPs: nodeIPsFrom(options.nodeIP),
    nodeLabels: options.nodeLabels,
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
