import { dirname, resolve } from "node:path";
import { isRecord } from "../lib/record.ts";
import {
  checkValues,
  decode,
  defaultsOf,
  encode,
  type Origin,
  unsupportedDefaults,
  unsupportedWarnings,
  valueAt,
  type ConfigDocument,
  withValue,
} from "./decode.ts";
import { type ConfigIo, type DocumentKind, readKind, unreadable } from "./documents.ts";
import { checkGates, gateWarnings } from "./feature-gates.ts";
import { hardEvictionDefaults, type KubeletConfiguration, kubeletFields } from "./kubelet-fields.ts";
import { checkRules } from "./kubelet-rules.ts";
import { fieldsOf } from "./schema.ts";

/** Type of a KubeletConfiguration document. */
export const configurationKind: DocumentKind = {
  apiVersion: "kubelet.config.k8s.io/v1beta1",
  kind: "KubeletConfiguration",
};

/** Fields whose relative paths start at the file's own directory. */
const pathFields = [
  "staticPodPath",
  "resolvConf",
  "tlsCertFile",
  "tlsPrivateKeyFile",
  "authentication.x509.clientCAFile",
];

/** The configuration without a file, to which flags are applied. */
export function defaultConfiguration(): KubeletConfiguration {
  return defaultsOf(kubeletFields);
}

/** Decodes a document and fills every field: first each field's own default, then the defaults that depend on other fields. @throws
 *  CodedError invalid_argument */
export function decodeConfiguration(wire: ConfigDocument, origin: Origin): KubeletConfiguration {
  const config = decode(kubeletFields, wire, origin);
  const update = config.nodeStatusUpdateFrequency;
  const reportIsSet = isSet(wire["nodeStatusReportFrequency"]) && config.nodeStatusReportFrequency !== 0;
  return {
    ...config,
    nodeStatusReportFrequency:
      reportIsSet || !isSet(wire["nodeStatusUpdateFrequency"]) ? config.nodeStatusReportFrequency : update,
    serializeImagePulls: isSet(wire["serializeImagePulls"])
      ? config.serializeImagePulls
      : config.maxParallelImagePulls === 1,
    podPidsLimit: Math.max(-1, config.podPidsLimit),
    evictionHard: hardEviction(wire, config),
  };
}

function isSet(wire: unknown): boolean {
  return wire !== undefined && wire !== null;
}

function hardEviction(wire: ConfigDocument, config: KubeletConfiguration): KubeletConfiguration["evictionHard"] {
  if (!isSet(wire["evictionHard"])) return hardEvictionDefaults;
  return config.mergeDefaultEvictionSettings
    ? { ...hardEvictionDefaults, ...config.evictionHard }
    : config.evictionHard;
}

/** Reads the configuration of a file. @throws CodedError invalid_argument */
export function readConfiguration(io: ConfigIo, path: string): KubeletConfiguration {
  const config = decodeConfiguration(readKind(io, "--config", path, configurationKind), { file: path });
  return pathFields.reduce((changed, field) => {
    const value = valueAt(changed, field);
    return typeof value === "string" && value !== ""
      ? withValue(changed, field, resolve(dirname(path), value))
      : changed;
  }, config);
}

/** Merges the drop-in files of a directory over the configuration: `*.conf` at any depth, in lexical order, each as a JSON merge patch:
 *  null resets a field, maps are merged and lists replaced. @throws CodedError invalid_argument
 *  @see https://kubernetes.io/docs/tasks/administer-cluster/kubelet-config-file/#kubelet-conf-d */
export function mergeDropIns(io: ConfigIo, directory: string, base: KubeletConfiguration): KubeletConfiguration {
  let wire: ConfigDocument = encode(kubeletFields, base);
  for (const name of dropIns(io, directory)) {
    const path = `${directory.replace(/\/+$/, "")}/${name}`;
    const patch = readKind(io, "--config-dir", path, configurationKind);
    decode(kubeletFields, patch, { file: path });
    wire = mergePatch(wire, patch);
  }
  return decodeConfiguration(wire, { file: directory });
}

function dropIns(io: ConfigIo, directory: string): string[] {
  try {
    const names = io.listDir(directory).filter((name) => name.endsWith(".conf"));
    return names.toSorted((one, other) => (byComponents(one) < byComponents(other) ? -1 : 1));
  } catch (error) {
    throw unreadable("--config-dir", directory, error);
  }
}

/** Sort key in the order of a directory walk: a separator sorts before every other character. */
function byComponents(path: string): string {
  return path.replaceAll("/", "\0");
}

/** @see https://www.rfc-editor.org/rfc/rfc7396 */
function mergePatch(target: ConfigDocument, patch: ConfigDocument): ConfigDocument {
  const merged: Record<string, unknown> = { ...target };
  for (const [name, value] of Object.entries(patch)) {
    const below = merged[name];
    if (value === null) delete merged[name];
    else merged[name] = isRecord(value) ? mergePatch(isRecord(below) ? below : {}, value) : value;
  }
  return merged;
}

/** Applies flags to the configuration. Feature gates are merged with the file's; every other flag replaces. */
export function applyFlags(config: KubeletConfiguration, flags: ReadonlyMap<string, unknown>): KubeletConfiguration {
  let changed = config;
  for (const [path, field] of fieldsOf(kubeletFields)) {
    if (field.flag !== undefined && flags.has(field.flag)) changed = withValue(changed, path, flags.get(field.flag));
  }
  return { ...changed, featureGates: { ...config.featureGates, ...changed.featureGates } };
}

/** Refuses configurations that are invalid for any kubelet. @throws CodedError invalid_argument */
export function checkConfiguration(config: KubeletConfiguration): void {
  checkGates(config.featureGates);
  checkValues(kubeletFields, config);
  checkRules(config);
}

/** One line for each unsupported setting, with the actual behaviour. */
export function configurationWarnings(config: KubeletConfiguration): string[] {
  const compared = evictsNothing(config) ? { ...config, evictionHard: hardEvictionDefaults } : config;
  return [...unsupportedWarnings(kubeletFields, compared, fileDefaults()), ...gateWarnings(config.featureGates)];
}

/** Clauses about unsupported kubelet features that these configurations enable by default, without duplicates: the actual behaviour of
 *  each. */
export function configurationDefaults(configs: readonly KubeletConfiguration[]): readonly string[] {
  return [...new Set(configs.flatMap((config) => unsupportedDefaults(kubeletFields, config, fileDefaults())))];
}

function fileDefaults(): KubeletConfiguration {
  return { ...defaultConfiguration(), evictionHard: hardEvictionDefaults };
}

function evictsNothing({ evictionHard }: KubeletConfiguration): boolean {
  return Object.keys(evictionHard).length === 0;
}

/** The configuration as a v1beta1 document, for /configz: complete, including the header values of staticPodURLHeader, as the kubelet shows
 *  it to users who may get nodes/configz.
 *  @see https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/ */
export function configurationDocument(config: KubeletConfiguration): Record<string, unknown> {
  return { ...configurationKind, ...encode(kubeletFields, config) };
}
