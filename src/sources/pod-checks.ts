import type { Container, PodSpec } from "../objects.ts";
import { checkContainer } from "./container-checks.ts";
import { refused } from "./pod-fields.ts";
import { volumeSources } from "./pod-defaults.ts";

const dnsLabel = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const labelShape = new RegExp(`^${dnsLabel}$`);
const subdomainShape = new RegExp(`^${dnsLabel}(\\.${dnsLabel})*$`);
const uidShape = /^[A-Za-z0-9][-A-Za-z0-9_.]{0,127}$/;
const labelValueShape = /^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$/;
const keyShape = new RegExp(`^(${dnsLabel}(\\.${dnsLabel})*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`);

/** True if a text is a valid name of a container, a volume or a namespace. */
function isDnsLabel(text: string): boolean {
  return text.length <= 63 && labelShape.test(text);
}

export interface StaticMeta {
  readonly name: string;
  readonly namespace: string;
  /** UID in the manifest; undefined if it has none. */
  readonly uid: string | undefined;
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
}

/** Checks names, which become paths on the target and parts of requests and must not lead elsewhere. @param name with the node's name
 *  appended. @throws CodedError invalid_argument */
export function checkMeta({ name, namespace, uid, labels, annotations }: StaticMeta): void {
  if (name.length > 253 || !subdomainShape.test(name))
    throw refused(
      "metadata.name",
      `${JSON.stringify(name)} is not a valid name: use at most 253 lower-case letters, digits, - and ., with the node's name at the end`,
    );
  if (!isDnsLabel(namespace))
    throw refused(
      "metadata.namespace",
      `${JSON.stringify(namespace)} is not a valid namespace: use at most 63 lower-case letters, digits and -`,
    );
  if (uid !== undefined && !uidShape.test(uid))
    throw refused(
      "metadata.uid",
      `${JSON.stringify(uid)} is not a valid UID: use letters, digits and -, or omit it to have one generated`,
    );
  for (const [key, value] of Object.entries(labels)) {
    if (!keyShape.test(key) || !labelValueShape.test(value))
      throw refused(
        `metadata.labels[${key}]`,
        "is not a valid label: key and value have at most 63 letters, digits, -, _ and ., the key an optional DNS prefix and /",
      );
  }
  for (const key of Object.keys(annotations)) {
    if (!keyShape.test(key.toLowerCase()))
      throw refused(`metadata.annotations[${key}]`, "is not a valid annotation key");
  }
}

const choices = {
  restartPolicy: ["Always", "OnFailure", "Never"],
  dnsPolicy: ["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"],
} as const;

/** Rejects a spec that the API server would reject too, if this node could not run it as intended. @param spec with defaults.
 *  @throws CodedError invalid_argument: the first invalid field, and the remedy.
 *  @see https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/ */
export function checkSpec(spec: PodSpec): void {
  if (spec.containers.length === 0) throw refused("spec.containers", "is empty: a pod needs at least one container");
  if (spec.ephemeralContainers?.length)
    throw refused("spec.ephemeralContainers", "can only be added to running pods, not by a manifest: omit them");
  for (const [field, allowed] of Object.entries(choices)) {
    const value = spec[field as keyof typeof choices] ?? "";
    if (!(allowed as readonly string[]).includes(value))
      throw refused(`spec.${field}`, `${JSON.stringify(value)} is not one of ${allowed.join(", ")}`);
  }
  if ((spec.terminationGracePeriodSeconds ?? 0) < 0)
    throw refused("spec.terminationGracePeriodSeconds", "is less than 0: set a number of seconds");
  if ((spec.activeDeadlineSeconds ?? 1) < 1)
    throw refused("spec.activeDeadlineSeconds", "is less than 1: set a number of seconds, or omit it");
  const volumes = checkVolumes(spec);
  const seen = new Set<string>();
  for (const list of ["initContainers", "containers"] as const) {
    for (const [index, container] of (spec[list] ?? []).entries()) {
      const at = `spec.${list}[${index}]`;
      checkContainerName(container, at, seen);
      checkContainer(container, { at, volumes, hostNetwork: spec.hostNetwork === true });
    }
  }
}

function checkContainerName({ name }: Container, at: string, seen: Set<string>): void {
  if (name === undefined) throw refused(`${at}.name`, "is missing: give the container a name");
  if (!isDnsLabel(name))
    throw refused(`${at}.name`, `${JSON.stringify(name)} is not a valid name: use lower-case letters, digits and -`);
  if (seen.has(name))
    throw refused(`${at}.name`, `${JSON.stringify(name)} is already the name of another container of this pod`);
  seen.add(name);
}

/** Checks the volumes. @returns their names. */
function checkVolumes({ volumes = [] }: PodSpec): ReadonlySet<string> {
  const names = new Set<string>();
  for (const [index, volume] of volumes.entries()) {
    const at = `spec.volumes[${index}]`;
    if (volume.name === undefined || !isDnsLabel(volume.name))
      throw refused(`${at}.name`, "is missing or invalid: use lower-case letters, digits and -");
    if (names.has(volume.name))
      throw refused(`${at}.name`, `${volume.name} is already the name of another volume of this pod`);
    names.add(volume.name);
    const sources = volumeSources(volume);
    if (sources.length > 1) throw refused(at, `has several sources (${sources.join(", ")}): keep one`);
    if (volume.hostPath) checkHostPath(volume.hostPath.path, `${at}.hostPath.path`);
  }
  return names;
}

function checkHostPath(path: string | undefined, field: string): void {
  if (path === undefined) throw refused(field, "is missing: set a path of the machine");
  if (path.split("/").includes("..")) throw refused(field, 'contains "..": use a path without it');
}
