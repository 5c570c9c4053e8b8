import { CodedError } from "../lib/errors.ts";
import type { ConfigMap, Container, EnvVar, Pod, Secret, Service } from "../objects.ts";
import { envFileValue } from "./env-file.ts";
import { expand } from "./expand.ts";
import { type FieldContext, podField, resourceField } from "./fields.ts";
import { serviceEnvironment } from "./service-env.ts";

/** A config map or secret that a container's environment draws from. */
export interface EnvironmentReference {
  readonly kind: "configMap" | "secret";
  readonly name: string;
  /** False as soon as one of the references to it is not optional. */
  readonly optional: boolean;
}

export interface EnvironmentInput extends FieldContext {
  readonly pod: Pod;
  readonly container: Container;
  /** Those of `environmentReferences` that exist, by name. */
  readonly configMaps: ReadonlyMap<string, ConfigMap>;
  readonly secrets: ReadonlyMap<string, Secret>;
  /** The content of those of `environmentFiles`, by fileKey, or why there is none. */
  readonly files: ReadonlyMap<string, string | Error>;
  readonly services: readonly Service[];
  /** Of the node, as quantities by resource name: what limits are where none is set. */
  readonly allocatable: Readonly<Record<string, string>>;
}

/** A file in a volume that a container's environment draws from. */
export interface EnvironmentFile {
  readonly volumeName: string;
  /** Relative, without `..`. */
  readonly path: string;
}

type FileReference = EnvironmentFile & { readonly key: string; readonly optional?: boolean };

/** One key for each file. */
export function fileKey({ volumeName, path }: EnvironmentFile): string {
  return `${volumeName}/${path}`;
}

/** The files that have to be read before the environment can be built. */
export function environmentFiles(container: Container): EnvironmentFile[] {
  return (container.env ?? []).flatMap(({ valueFrom }) => valueFrom?.fileKeyRef ?? []);
}

/** What has to be read before the environment can be built, in the order in which the spec names it. */
export function environmentReferences(container: Container): EnvironmentReference[] {
  const found = new Map<string, EnvironmentReference>();
  const note = (kind: EnvironmentReference["kind"], ref: { name?: string; optional?: boolean } | undefined) => {
    if (!ref) return;
    const name = ref.name ?? "";
    const known = found.get(`${kind}/${name}`);
    found.set(`${kind}/${name}`, { kind, name, optional: (known?.optional ?? true) && ref.optional === true });
  };
  for (const { configMapRef, secretRef } of container.envFrom ?? []) {
    note("configMap", configMapRef);
    note("secret", secretRef);
  }
  for (const { valueFrom } of container.env ?? []) {
    note("configMap", valueFrom?.configMapKeyRef);
    note("secret", valueFrom?.secretKeyRef);
  }
  return [...found.values()];
}

/** A container's environment: `envFrom`, then `env` in order with `$(NAME)` expanded from what came before and from services,
 *  then the service variables that nothing overrides. The order is the spec's; within one source keys are sorted.
 *  @throws Error with the kubelet's text when an object, a key or a field that is not optional is missing.
 *  @see https://kubernetes.io/docs/tasks/inject-data-application/define-environment-variable-container/ */
export function buildEnvironment(input: EnvironmentInput): Map<string, string> {
  const { pod, container } = input;
  const services = serviceEnvironment(input.services, pod.metadata.namespace, pod.spec.enableServiceLinks ?? true);
  const own = fromSources(input);
  const valueOf = (name: string) => own.get(name) ?? services.get(name);
  for (const variable of container.env ?? []) {
    const value = variable.value ? expand(variable.value, valueOf) : resolve(input, variable);
    if (value !== undefined) own.set(variable.name, value);
  }
  for (const [name, value] of services) if (!own.has(name)) own.set(name, value);
  return own;
}

function fromSources(input: EnvironmentInput): Map<string, string> {
  const values = new Map<string, string>();
  for (const { prefix = "", configMapRef, secretRef } of input.container.envFrom ?? []) {
    const data = configMapRef
      ? configMapData(input, configMapRef)
      : secretRef
        ? secretData(input, secretRef)
        : undefined;
    for (const key of Object.keys(data ?? {}).sort()) values.set(prefix + key, data?.[key] ?? "");
  }
  return values;
}

/** @returns undefined when the variable is optional and has no value: it is then left out. */
function resolve(input: EnvironmentInput, { valueFrom }: EnvVar): string | undefined {
  const { pod, container, allocatable } = input;
  if (!valueFrom) return "";
  if (valueFrom.fieldRef) return podField(pod, valueFrom.fieldRef.fieldPath, input);
  if (valueFrom.resourceFieldRef) return resourceField(pod, valueFrom.resourceFieldRef, container.name, allocatable);
  const { configMapKeyRef, secretKeyRef } = valueFrom;
  if (configMapKeyRef) return keyOf("ConfigMap", pod, configMapKeyRef, configMapData(input, configMapKeyRef));
  if (secretKeyRef) return keyOf("Secret", pod, secretKeyRef, secretData(input, secretKeyRef));
  return valueFrom.fileKeyRef && fileValue(input, valueFrom.fileKeyRef);
}

/** A variable that is empty counts as missing. */
function fileValue(
  { files }: EnvironmentInput,
  { volumeName, path, key, optional }: FileReference,
): string | undefined {
  const text = files.get(fileKey({ volumeName, path }));
  if (text instanceof Error) throw text;
  let value: string | undefined;
  try {
    value = envFileValue(text ?? "", key);
  } catch (error) {
    throw new Error("couldn't parse env file", { cause: error });
  }
  if (value) return value;
  if (optional) return undefined;
  throw new Error(`environment variable key ${JSON.stringify(key)} not found in file ${JSON.stringify(path)}`);
}

interface KeyReference {
  readonly name?: string;
  readonly key: string;
  readonly optional?: boolean;
}

function keyOf(
  kind: string,
  pod: Pod,
  ref: KeyReference,
  data: Readonly<Record<string, string>> | undefined,
): string | undefined {
  const value = data && Object.hasOwn(data, ref.key) ? data[ref.key] : undefined;
  if (value === undefined && !ref.optional)
    throw new Error(`couldn't find key ${ref.key} in ${kind} ${pod.metadata.namespace}/${ref.name ?? ""}`);
  return value;
}

type Reference = Omit<KeyReference, "key">;

function configMapData(
  { configMaps }: EnvironmentInput,
  { name = "", optional }: Reference,
): Readonly<Record<string, string>> | undefined {
  const found = configMaps.get(name);
  if (!found && !optional) throw new CodedError("not_found", `configmap ${JSON.stringify(name)} not found`);
  return found && (found.data ?? {});
}

function secretData(
  { secrets }: EnvironmentInput,
  { name = "", optional }: Reference,
): Readonly<Record<string, string>> | undefined {
  const found = secrets.get(name);
  if (!found && !optional) throw new CodedError("not_found", `secret ${JSON.stringify(name)} not found`);
  return (
    found &&
    Object.fromEntries(
      Object.entries(found.data ?? {}).map(([key, value]) => [key, Buffer.from(value, "base64").toString()]),
    )
  );
}
