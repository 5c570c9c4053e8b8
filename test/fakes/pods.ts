import {
  type ContainerState,
  ContainerStatus,
  NamespaceMode,
  PodSandboxState,
  PodSandboxStatus,
} from "../../src/gen/cri.ts";
import type { Container, Pod, PodSpec } from "../../src/objects.ts";
import type { RuntimePod } from "../../src/pipeline.ts";
import type { DesiredPod, AllocatedPod, ApiPod } from "../../src/roles.ts";
import { containerHash } from "../../src/pod/hash.ts";
import { containerHashAnnotation, containerNameLabel, podUidLabel } from "../../src/pod/labels.ts";

/** A pod that has been given what it asks for, and that the API server shows so. */
export type TestPod = DesiredPod & AllocatedPod & ApiPod;

/** Marks a pod as all three. */
export function testPod(pod: Pod): TestPod {
  return pod as TestPod;
}

/** A pod with one container `c` unless the spec says otherwise. */
export function aPod(spec: Partial<PodSpec> = {}, metadata: Partial<Pod["metadata"]> = {}): TestPod {
  return testPod({
    metadata: { name: "p", namespace: "default", uid: "uid-1", creationTimestamp: "2026-01-01T00:00:00Z", ...metadata },
    spec: { containers: [aContainer("c")], restartPolicy: "Always", nodeName: "node", ...spec },
  });
}

export function aContainer(name: string, more: Partial<Container> = {}): Container {
  return { name, image: "busybox", ...more };
}

let created = 0n;

export function aSandbox(more: Partial<PodSandboxStatus> = {}): PodSandboxStatus {
  created += 1n;
  return PodSandboxStatus.fromPartial({
    id: `sandbox-${created}`,
    metadata: { name: "p", namespace: "default", uid: "uid-1", attempt: 0 },
    state: PodSandboxState.SANDBOX_READY,
    createdAt: created,
    network: { ip: "10.0.0.2", additionalIps: [] },
    linux: { namespaces: { options: { network: NamespaceMode.POD } } },
    labels: { [podUidLabel]: "uid-1" },
    ...more,
  });
}

/** A status as the runtime shows it for a container of the pod; later calls make newer ones. */
export function aStatus(
  container: Container,
  state: ContainerState,
  more: Partial<ContainerStatus> = {},
): ContainerStatus {
  created += 1n;
  return ContainerStatus.fromPartial({
    id: `container-${created}`,
    metadata: { name: container.name, attempt: 0 },
    state,
    createdAt: created,
    labels: { [containerNameLabel]: container.name, [podUidLabel]: "uid-1" },
    annotations: { [containerHashAnnotation]: containerHash(container) },
    ...more,
  });
}

/** What the runtime shows of a pod: lists are put in order, newest first.
 *  @param containers of its newest sandbox. @param earlier containers of an earlier sandbox. */
export function observe(
  sandboxes: readonly PodSandboxStatus[],
  containers: readonly ContainerStatus[],
  earlier: readonly ContainerStatus[] = [],
): RuntimePod {
  const newest = <T extends { createdAt: bigint }>(list: readonly T[]) =>
    [...list].sort((a, b) => (a.createdAt < b.createdAt ? 1 : -1));
  const ordered = newest(sandboxes);
  const ip = ordered[0]?.network?.ip;
  const own = ordered[0]?.id ?? "sandbox-gone";
  return {
    uid: "uid-1",
    name: "p",
    namespace: "default",
    sandboxes: ordered,
    containers: newest([...containers, ...earlier]),
    sandboxOf: new Map([
      ...containers.map(({ id }) => [id, own] as const),
      ...earlier.map(({ id }) => [id, "sandbox-before"] as const),
    ]),
    ips: ip ? [ip] : [],
    observedAt: 0,
  };
}
