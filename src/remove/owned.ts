import { type Container, ContainerState, type PodSandbox } from "../gen/cri.ts";
import {
  configSourceAnnotation,
  containerNameLabel,
  nodeLabel,
  podNameLabel,
  podNamespaceLabel,
  podTerminationGraceAnnotation,
  podUidLabel,
} from "../pod/labels.ts";
import type { Sharing } from "../seams/provider.ts";
import type { FoundContainer } from "./findings.ts";

/** A pod of the node, found in its runtime or its root directory. */
export interface OwnedPod {
  readonly uid: string;
  /** `namespace/name` if the runtime knows it. */
  readonly name: string | undefined;
  readonly containers: readonly FoundContainer[];
  readonly sandboxIds: readonly string[];
  readonly hasDirectory: boolean;
}

export interface OwnershipInput {
  readonly sandboxes: readonly PodSandbox[];
  readonly containers: readonly Container[];
  /** UIDs of pods that have a directory below the node's root directory. */
  readonly directories: readonly string[];
  readonly sharing: Sharing;
  readonly nodeName: string;
  /** True if static pods belong to the node, too. */
  readonly staticPods: boolean;
}

/** Minimum number of seconds between SIGTERM and SIGKILL, even for a shorter grace period. (kubelet) */
const minGraceSeconds = 2;

/** Finds the node's pods. The node label decides. In a shared runtime, pods without the label belong to no node; in an exclusive runtime,
 *  they belong to this node if they have a directory here and come from one of the node's sources, since a kubelet or an earlier version
 *  of this node created them. Pure.
 *  @returns the pods; and a sentence for each other pod of an exclusive runtime, sorted by name. */
export function ownedPods(input: OwnershipInput): {
  readonly pods: readonly OwnedPod[];
  readonly strangers: readonly string[];
} {
  const directories = new Set(input.directories);
  const ours = (labels: Labels, annotations: Labels) => isOurs(labels, annotations, input, directories);
  const sandboxes = input.sandboxes.filter(({ labels, annotations }) => ours(labels, annotations));
  const own = new Set(sandboxes.map(({ id }) => id));
  const foreignSandboxes = new Set(input.sandboxes.filter(({ id }) => !own.has(id)).map(({ id }) => id));
  const containers = input.containers.filter(
    ({ podSandboxId, labels }) => own.has(podSandboxId) || (!foreignSandboxes.has(podSandboxId) && ours(labels, {})),
  );
  const foreign = new Set(
    input.sandboxes.filter(({ id }) => foreignSandboxes.has(id)).map(({ labels }) => labels[podUidLabel]),
  );
  const uids = new Set([
    ...input.directories.filter((uid) => !foreign.has(uid)),
    ...[...sandboxes, ...containers].map(({ labels }) => labels[podUidLabel] ?? ""),
  ]);
  uids.delete("");
  const pods = [...uids].map((uid): OwnedPod => {
    const sandboxesOfIt = sandboxes.filter(({ labels }) => labels[podUidLabel] === uid);
    const containersOfIt = containers.filter(({ labels }) => labels[podUidLabel] === uid);
    return {
      uid,
      name: podNameIn([...sandboxesOfIt, ...containersOfIt][0]?.labels),
      containers: containersOfIt.map(foundContainer),
      sandboxIds: sandboxesOfIt.map(({ id }) => id),
      hasDirectory: directories.has(uid) && !foreign.has(uid),
    };
  });
  return { pods: pods.toSorted(byName), strangers: unownedPods(input, foreignSandboxes) };
}

type Labels = Readonly<Record<string, string>>;

function isOurs(
  labels: Labels,
  annotations: Labels,
  { sharing, nodeName, staticPods }: OwnershipInput,
  directories: ReadonlySet<string>,
): boolean {
  const uid = labels[podUidLabel];
  if (uid === undefined) return false;
  if (labels[nodeLabel] !== undefined) return labels[nodeLabel] === nodeName;
  const mayBe = staticPods || (annotations[configSourceAnnotation] ?? "api") === "api";
  return sharing === "exclusive" && directories.has(uid) && mayBe;
}

/** In a shared runtime, pods of other nodes are expected. */
function unownedPods({ sandboxes, sharing }: OwnershipInput, foreign: ReadonlySet<string>): readonly string[] {
  if (sharing === "shared") return [];
  const names = sandboxes
    .filter(({ id }) => foreign.has(id))
    .map(({ id, labels }) => podNameIn(labels) ?? `sandbox ${id.slice(0, 13)}`);
  return [...new Set(names)].sort().map((name) => `pod ${name} in the runtime may not belong to this node`);
}

function foundContainer({ id, labels, annotations, state }: Container): FoundContainer {
  const grace = Number.parseInt(annotations[podTerminationGraceAnnotation] ?? "", 10);
  return {
    id,
    name: labels[containerNameLabel] ?? id,
    running: state === ContainerState.CONTAINER_RUNNING,
    graceSeconds: Math.max(minGraceSeconds, Number.isNaN(grace) ? 0 : grace),
  };
}

function podNameIn(labels: Labels | undefined): string | undefined {
  const name = labels?.[podNameLabel];
  return name === undefined ? undefined : `${labels?.[podNamespaceLabel] ?? ""}/${name}`;
}

function byName(a: OwnedPod, b: OwnedPod): number {
  return (a.name ?? a.uid).localeCompare(b.name ?? b.uid);
}
