import { createHash } from "node:crypto";
import { checkKind, type ConfigIo, documentIn, readSettingFile, unreadable } from "./documents.ts";
import { decode } from "./decode.ts";
import { gateEnabled, type GateSettings } from "./feature-gates.ts";
import { isQualifiedName } from "./names.ts";
import { environment, group, groups } from "./object-types.ts";
import { refuse } from "./refusal.ts";
import { field, optional, type Shape, type ValueOf } from "./schema.ts";
import { bool, duration, oneOf, text, texts } from "./value-types.ts";

/** A program that returns credentials for registries, as described by a CredentialProviderConfig.
 *  @see https://kubernetes.io/docs/tasks/administer-cluster/kubelet-credential-provider/ */
export interface CredentialProvider {
  readonly name: string;
  /** Path of the program on the machine that graftlet runs on. */
  readonly path: string;
  readonly args: readonly string[];
  readonly env: readonly { readonly name: string; readonly value: string }[];
  /** API version of requests and responses. */
  readonly apiVersion: string;
  /** Patterns of the images that the program is run for, such as `*.dkr.ecr.*.amazonaws.com`. */
  readonly matchImages: readonly string[];
  /** Cache duration of responses that specify none, milliseconds. */
  readonly defaultCacheMs: number;
  /** Present if the program is run on behalf of the pod's service account. */
  readonly token?: TokenAttributes;
}

export interface TokenAttributes {
  readonly audience: string;
  /** Scope of cached responses: one token, or one service account. */
  readonly cacheType: "ServiceAccount" | "Token";
  /** The program is not run for pods without a service account. */
  readonly requireServiceAccount: boolean;
  /** Annotations of the service account that are passed to the program; without one of the required ones it is not run. */
  readonly requiredAnnotations: readonly string[];
  readonly optionalAnnotations: readonly string[];
}

/** All credential provider plugins of a node. */
export interface CredentialProviders {
  readonly providers: readonly CredentialProvider[];
  /** SHA-256 of the configuration, computed as by the kubelet. */
  readonly hash: string;
}

/** The flags of credential provider plugins; empty if not set. */
export interface CredentialProviderOptions {
  readonly imageCredentialProviderConfig: string;
  readonly imageCredentialProviderBinDir: string;
}

const configFlag = "--image-credential-provider-config";
const directoryFlag = "--image-credential-provider-bin-dir";
const kind = "CredentialProviderConfig";
const configVersions = ["v1", "v1beta1", "v1alpha1"].map((version) => `kubelet.config.k8s.io/${version}`);
const pluginVersions = ["v1", "v1beta1", "v1alpha1"].map((version) => `credentialprovider.kubelet.k8s.io/${version}`);

const fileFields = { providers: field(groups("a list of providers, each with a name"), []) } satisfies Shape;

const providerFields = {
  name: field(text, ""),
  matchImages: field(texts, []),
  defaultCacheDuration: optional(duration),
  apiVersion: field(text, ""),
  args: field(texts, []),
  env: field(environment, []),
  tokenAttributes: optional(group),
} satisfies Shape;

const tokenFields = {
  serviceAccountTokenAudience: field(text, ""),
  cacheType: optional(oneOf("ServiceAccount", "Token")),
  requireServiceAccount: optional(bool),
  requiredServiceAccountAnnotationKeys: field(texts, []),
  optionalServiceAccountAnnotationKeys: field(texts, []),
} satisfies Shape;

/** Reads the configuration of credential provider plugins: a file, or the files of a directory in lexical order.
 *  @returns undefined if the flags are not set. @throws CodedError invalid_argument
 *  @see https://kubernetes.io/docs/tasks/administer-cluster/kubelet-credential-provider/ */
function readCredentialProviders(io: ConfigIo, options: CredentialProviderOptions): CredentialProviders | undefined {
  const { imageCredentialProviderConfig: path, imageCredentialProviderBinDir: directory } = options;
  if (path === "" && directory === "") return undefined;
  if (path === "") throw refuse(configFlag, undefined, `is not set: set the file with ${kind}`);
  if (directory === "") throw refuse(directoryFlag, undefined, "is not set: set the directory of the plugins");
  const hash = createHash("sha256");
  const providers = filesOf(io, path).flatMap((file) => {
    const content = readSettingFile(io, configFlag, file);
    const length = Buffer.alloc(8);
    length.writeBigUInt64BE(BigInt(Buffer.byteLength(content)));
    hash.update(length).update(content);
    return parseProviders(content, file, directory);
  });
  const twin = firstDuplicate(providers.map(({ name }) => name));
  if (twin !== undefined) throw refuse(`${path}: providers.name`, twin, "two providers have that name; keep one");
  for (const provider of providers) {
    if (!io.isExecutable(provider.path))
      throw refuse(`${path}: providers.name`, provider.name, `there is no program ${provider.path}; install it there`);
  }
  return { providers, hash: `sha256:${hash.digest("hex")}` };
}

/** Adds the credential provider plugins to nodes. @throws CodedError invalid_argument, as `readCredentialProviders`, and if a node's
 *  feature gates forbid them */
export function withCredentialProviders<Node extends { readonly kubelet: { readonly featureGates: GateSettings } }>(
  io: ConfigIo,
  options: CredentialProviderOptions,
  nodes: readonly Node[],
): readonly (Node & { readonly credentialProviders?: CredentialProviders })[] {
  const credentialProviders = readCredentialProviders(io, options);
  if (!credentialProviders) return nodes;
  const user = credentialProviders.providers.find(({ token }) => token);
  const gate = "KubeletServiceAccountTokenForCredentialProviders";
  if (user && nodes.some(({ kubelet }) => !gateEnabled(kubelet.featureGates, gate)))
    throw refuse(`provider ${user.name}: tokenAttributes`, undefined, `needs the feature gate ${gate}; turn it on`);
  return nodes.map((node) => ({ ...node, credentialProviders }));
}

function filesOf(io: ConfigIo, path: string): readonly string[] {
  const names = fileNames(io, path);
  if (!names) return [path];
  const files = names.filter((name) => /^[^/]+\.(json|yaml|yml)$/.test(name)).toSorted();
  if (files.length === 0) throw refuse(configFlag, path, "the directory has no *.json, *.yaml or *.yml; put one there");
  return files.map((name) => `${path.replace(/\/+$/, "")}/${name}`);
}

/** Names of the files of a directory; undefined for a file. */
function fileNames(io: ConfigIo, path: string): readonly string[] | undefined {
  try {
    return io.listDir(path);
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOTDIR") return undefined;
    throw unreadable(configFlag, path, error);
  }
}

function firstDuplicate(names: readonly string[]): string | undefined {
  return names.find((name, index) => names.indexOf(name) !== index);
}

function parseProviders(content: string, file: string, directory: string): readonly CredentialProvider[] {
  const document = documentIn(content, configFlag, file);
  const apiVersion = configVersions.find((version) => version === document["apiVersion"]) ?? configVersions[0] ?? "";
  const { providers } = decode(fileFields, checkKind(`${file}: `, document, { apiVersion, kind }), { file });
  if (providers.length === 0) throw refuse(`${file}: providers`, [], "list at least one provider");
  return providers.map((wire, index) => {
    const path = `providers[${index}]`;
    return providerFrom(decode(providerFields, wire, { file, path }), { file, path }, directory);
  });
}

interface Place {
  readonly file: string;
  readonly path: string;
}

function providerFrom(given: ValueOf<typeof providerFields>, place: Place, directory: string): CredentialProvider {
  const { name, matchImages, defaultCacheDuration, apiVersion, args, env, tokenAttributes } = given;
  const where = (at: string) => `${place.file}: ${place.path}.${at}`;
  if (name === "") throw refuse(where("name"), undefined, "is not given; specify the program");
  if (name === "." || name === ".." || /[/ ]/.test(name))
    throw refuse(where("name"), name, `use the name of a file in ${directory}, without a path or spaces`);
  if (!pluginVersions.includes(apiVersion))
    throw refuse(where("apiVersion"), apiVersion || undefined, `write one of ${pluginVersions.join(", ")}`);
  if (matchImages.length === 0) throw refuse(where("matchImages"), [], "list at least one location of images");
  const odd = matchImages.find((location) => !isLocation(location));
  if (odd !== undefined)
    throw refuse(where("matchImages"), odd, "write a location such as *.registry.example.com/team");
  if (defaultCacheDuration === undefined)
    throw refuse(where("defaultCacheDuration"), undefined, 'is not given; write one such as "10m"');
  if (defaultCacheDuration < 0)
    throw refuse(where("defaultCacheDuration"), defaultCacheDuration, "use a duration of 0 or more");
  const path = `${directory.replace(/\/+$/, "")}/${name}`;
  const token = tokenAttributes && tokenFrom(tokenAttributes, place, apiVersion);
  const program = { name, path, args, env, apiVersion, matchImages, defaultCacheMs: defaultCacheDuration };
  return { ...program, ...(token && { token }) };
}

/** Checks for a host, port and path, with `*` allowed in the host's labels. */
function isLocation(location: string): boolean {
  return URL.canParse(`https://${location.replaceAll("*", "x")}`) && !/^https?:|[?#\s]/.test(location);
}

function tokenFrom(wire: Readonly<Record<string, unknown>>, { file, path }: Place, apiVersion: string) {
  const place = { file, path: `${path}.tokenAttributes` };
  const where = (at: string) => `${file}: ${place.path}.${at}`;
  const given = decode(tokenFields, wire, place);
  const { serviceAccountTokenAudience: audience, cacheType, requireServiceAccount } = given;
  const { requiredServiceAccountAnnotationKeys: required, optionalServiceAccountAnnotationKeys: others } = given;
  if (apiVersion !== pluginVersions[0])
    throw refuse(`${file}: ${path}.apiVersion`, apiVersion, `tokenAttributes need ${pluginVersions[0]}`);
  if (audience === "")
    throw refuse(where("serviceAccountTokenAudience"), undefined, "is not given; specify the audience");
  if (requireServiceAccount === undefined)
    throw refuse(where("requireServiceAccount"), undefined, "is not given; write true or false");
  if (cacheType === undefined)
    throw refuse(where("cacheType"), undefined, "is not given; write ServiceAccount, or Token");
  if (!requireServiceAccount && required.length > 0)
    throw refuse(
      where("requiredServiceAccountAnnotationKeys"),
      required,
      "they need requireServiceAccount: true; set that, or list them as optional",
    );
  const keys = [...required, ...others];
  const odd = keys.find((key) => !isQualifiedName(key.toLowerCase()));
  if (odd !== undefined) throw refuse(where("requiredServiceAccountAnnotationKeys"), odd, "is not an annotation key");
  const twin = firstDuplicate(keys);
  if (twin !== undefined)
    throw refuse(where("optionalServiceAccountAnnotationKeys"), twin, "the key is listed twice; keep one");
  return {
    audience,
    cacheType,
    requireServiceAccount,
    requiredAnnotations: required,
    optionalAnnotations: others,
  } satisfies TokenAttributes;
}
