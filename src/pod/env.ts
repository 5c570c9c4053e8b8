import { isUtf8 } from "node:buffer";
import { CodedError } from "../lib/errors.ts";
import type { ConfigMap, Container, EnvVar, Pod, Secret, Service } from "../objects.ts";
import { type EnvFile, NotUtf8Error } from "./env-file.ts";
import { createArgumentSizes, expand, variableLabel } from "./expand.ts";
import { type FieldContext, podField, resourceField } from "./fields.ts";
import { serviceEnvironment } from "./service-env.ts";

/** A ConfigMap or Secret that a container's environment refers to. */
export interface EnvironmentReference {
  readonly kind: "configMap" | "secret";
  readonly name: string;
  /** False if any of the references to it is required. */
  readonly optional: boolean;
}

export interface EnvironmentInput extends FieldContext {
  readonly pod: Pod;
  readonly container: Container;
  /** Existing objects of `environmentReferences`, by name. */
  readonly configMaps: ReadonlyMap<string, ConfigMap>;
  readonly secrets: ReadonlyMap<string, Secret>;
  /** Parsed `environmentFiles` by fileKey, or the error of an unreadable one. */
  readonly files: ReadonlyMap<string, EnvFile | Error>;
  readonly services: readonly Service[];
  /** The node's allocatable resources, which are the limits of containers without their own. */
  readonly allocatable: Readonly<Record<string, string>>;
}

/** A file in a volume that a container's environment refers to. */
export interface EnvironmentFile {
  readonly volumeName: string;
  /** Relative, without `..`. */
  readonly path: string;
}

type FileReference = EnvironmentFile & { readonly key: string; readonly optional?: boolean };

/** A unique key for each file. */
export function fileKey({ volumeName, path }: EnvironmentFile): string {
  return `${volumeName}/${path}`;
}

/** Files to read before the environment can be built, each once. */
export function environmentFiles(container: Container): EnvironmentFile[] {
  const files = (container.env ?? []).flatMap(({ valueFrom }) => valueFrom?.fileKeyRef ?? []);
  return [...new Map(files.map((file) => [fileKey(file), file])).values()];
}

/** Objects to read before the environment can be built, in spec order. */
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

/** True if the container's environment refers to the pod's addresses. */
export function readsPodAddresses({ env = [] }: Container): boolean {
  return env.some(({ valueFrom }) => /^status\.podIPs?$/.test(valueFrom?.fieldRef?.fieldPath ?? ""));
}

const invalidInEnvironment = "which a container's environment cannot hold";

/** A container's environment: `envFrom`, then `env` in order with `$(NAME)` expanded from earlier variables and from services, then
 *  service variables that are not overridden. Spec order; within one source, keys are sorted.
 *  @throws Error with the kubelet's text if a required object, key or field is missing; or one that names the variable that exceeds the
 *  size limits of a process, before it is built.
 *  @see https://kubernetes.io/docs/tasks/inject-data-application/define-environment-variable-container/ */
export function buildEnvironment(input: EnvironmentInput): Map<string, string> {
  const { pod, container } = input;
  const services = serviceEnvironment(input.services, pod.metadata.namespace, pod.spec.enableServiceLinks ?? true);
  const sum = createArgumentSizes();
  const own = new Map<string, string>();
  const put = (name: string, value: string) => {
    if (value.includes("\0")) throw new Error(`${variableLabel(name)} has a NUL byte, ${invalidInEnvironment}`);
    sum.add(variableLabel(name), name, value);
    own.set(name, value);
  };
  putSources(input, put);
  const valueOf = (name: string) => own.get(name) ?? services.get(name);
  for (const variable of container.env ?? []) {
    const { name, value: text } = variable;
    const value = text ? expand(text, valueOf, variableLabel(name)) : resolve(input, variable);
    if (value !== undefined) put(name, value);
  }
  for (const [name, value] of services) if (!own.has(name)) put(name, value);
  return own;
}

function putSources(input: EnvironmentInput, put: (name: string, value: string) => void): void {
  for (const { prefix = "", configMapRef, secretRef } of input.container.envFrom ?? []) {
    const values = configMapRef
      ? configMapValues(input, configMapRef)
      : secretRef
        ? secretValues(input, secretRef)
        : undefined;
    for (const key of values?.keys().sort() ?? []) put(prefix + key, values?.get(key, prefix + key) ?? "");
  }
}

/** @returns undefined if the variable is optional and has no value; it is then omitted. */
function resolve(input: EnvironmentInput, { name, valueFrom }: EnvVar): string | undefined {
  const { pod, container, allocatable } = input;
  if (!valueFrom) return "";
  if (valueFrom.fieldRef) return podField(pod, valueFrom.fieldRef.fieldPath, input);
  if (valueFrom.resourceFieldRef) return resourceField(pod, valueFrom.resourceFieldRef, container.name, allocatable);
  const { configMapKeyRef, secretKeyRef } = valueFrom;
  if (configMapKeyRef)
    return requiredKey("ConfigMap", { pod, name }, configMapKeyRef, configMapValues(input, configMapKeyRef));
  if (secretKeyRef) return requiredKey("Secret", { pod, name }, secretKeyRef, secretValues(input, secretKeyRef));
  return valueFrom.fileKeyRef && fileValue(input, name, valueFrom.fileKeyRef);
}

/** The value of a key in an environment file; an empty value counts as missing. */
function fileValue(
  { files }: EnvironmentInput,
  name: string,
  { volumeName, path, key, optional }: FileReference,
): string | undefined {
  const file = files.get(fileKey({ volumeName, path }));
  if (file instanceof Error) throw file;
  let value: string | undefined;
  try {
    value = file?.get(key);
  } catch (error) {
    if (error instanceof NotUtf8Error)
      throw new Error(
        `${variableLabel(name)}: ${error.message} in file ${JSON.stringify(path)}, ${invalidInEnvironment}`,
        {
          cause: error,
        },
      );
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

function requiredKey(
  kind: string,
  { pod, name }: { readonly pod: Pod; readonly name: string },
  ref: KeyReference,
  values: ObjectValues | undefined,
): string | undefined {
  const value = values?.get(ref.key, name);
  if (value === undefined && !ref.optional)
    throw new Error(`couldn't find key ${ref.key} in ${kind} ${pod.metadata.namespace}/${ref.name ?? ""}`);
  return value;
}

type ObjectKeyReference = Omit<KeyReference, "key">;

/** Values of an object, decoded lazily: many variables may refer to one key of a large object. */
interface ObjectValues {
  keys(): string[];
  /** @param variable variable that gets the value. @throws Error for a value that cannot be an environment variable. */
  get(key: string, variable: string): string | undefined;
}

function objectValues(
  data: Readonly<Record<string, string>> = {},
  decode = (value: string, _key: string, _variable: string) => value,
): ObjectValues {
  return {
    keys: () => Object.keys(data),
    get(key, variable) {
      const value = Object.hasOwn(data, key) ? data[key] : undefined;
      return value === undefined ? undefined : decode(value, key, variable);
    },
  };
}

function configMapValues(
  { configMaps }: EnvironmentInput,
  { name = "", optional }: ObjectKeyReference,
): ObjectValues | undefined {
  const found = configMaps.get(name);
  if (!found && !optional) throw new CodedError("not_found", `configmap ${JSON.stringify(name)} not found`);
  return found && objectValues(found.data);
}

function secretValues(
  { pod, secrets }: EnvironmentInput,
  { name = "", optional }: ObjectKeyReference,
): ObjectValues | undefined {
  const found = secrets.get(name);
  if (!found && !optional) throw new CodedError("not_found", `secret ${JSON.stringify(name)} not found`);
  return (
    found &&
    objectValues(found.data, (value, key, variable) => {
      const bytes = Buffer.from(value, "base64");
      if (isUtf8(bytes)) return bytes.toString();
      // Neither CRI strings nor the runtimes' own files can hold other bytes, and a lossy conversion would change the secret.
      const where = `key ${key} in Secret ${pod.metadata.namespace}/${name}`;
      throw new Error(
        `${variableLabel(variable)}: ${where} is not UTF-8, ${invalidInEnvironment}: mount the Secret as a volume`,
      );
    })
  );
}
