import { ContainerConfig, type Device, type LinuxContainerConfig, Mount } from "../gen/cri.ts";
import type { Container, Pod } from "../objects.ts";
import { createArgumentSizes, expand, variableLabel } from "../pod/expand.ts";
import { containerHash, goJson } from "../pod/hash.ts";
import {
  containerHashAnnotation,
  containerNameLabel,
  containerPortsAnnotation,
  containerRestartCountAnnotation,
  podDeletionGraceAnnotation,
  podNameLabel,
  podNamespaceLabel,
  podTerminationGraceAnnotation,
  podUidLabel,
  preStopHandlerAnnotation,
  resourcesAnnotation,
  terminationMessagePathAnnotation,
  terminationMessagePolicyAnnotation,
} from "../pod/labels.ts";
import { containerLogPath } from "../pod/log-paths.ts";
import { resourcesAnnotationValue } from "../pod/pod-resources.ts";
import { stopSignalOf } from "../pod/stop-signal.ts";
import type { ContainerAdditions } from "../resource-manager.ts";
import { terminationMessagePath } from "./container-files.ts";

export interface ContainerConfigInput {
  readonly pod: Pod;
  readonly container: Container;
  /** The runtime's reference for the image. */
  readonly image: string;
  readonly restartCount: number;
  readonly environment: ReadonlyMap<string, string>;
  readonly mounts: readonly Mount[];
  /** Additions of the resource managers. */
  readonly additions: ContainerAdditions | undefined;
  readonly volumeDevices: readonly Device[];
  readonly linux: LinuxContainerConfig;
  /** True if the stop signal in the container's spec is used (feature gate ContainerStopSignals). */
  readonly stopSignals: boolean;
  /** Labels that identify this node's containers on a shared runtime; otherwise empty. */
  readonly ownerLabels: Readonly<Record<string, string>>;
}

/** The CreateContainer configuration. Labels, annotations and log path are the kubelet's, so that either agent can take over from the
 *  other.
 *  @throws Error that names the part that exceeds the size limit of process arguments, before it is built.
 *  @see https://kubernetes.io/docs/tasks/inject-data-application/define-command-argument-container/ */
export function buildContainerConfig(input: ContainerConfigInput): ContainerConfig {
  const { pod, container, restartCount, additions } = input;
  return ContainerConfig.fromPartial({
    metadata: { name: container.name, attempt: restartCount },
    image: { image: input.image, userSpecifiedImage: container.image ?? "" },
    ...processStrings(input),
    workingDir: container.workingDir ?? "",
    mounts: [...addedMounts(additions), ...input.mounts].map((mount) => ({ ...mount, ...mappingsOf(input) })),
    devices: [...(additions?.devices ?? []), ...input.volumeDevices],
    CDIDevices: (additions?.cdiDevices ?? []).map((name) => ({ name })),
    labels: labelsOf(input),
    // Our own annotations take precedence over a manager's.
    annotations: { ...additions?.annotations, ...containerAnnotations(pod, container, restartCount) },
    logPath: containerLogPath(container.name, restartCount),
    stdin: container.stdin ?? false,
    stdinOnce: container.stdinOnce ?? false,
    tty: container.tty ?? false,
    linux: input.linux,
    ...(input.stopSignals && { stopSignal: stopSignalOf(container) }),
  });
}

/** The command, arguments and environment of the container's process. */
function processStrings({ container, environment }: ContainerConfigInput) {
  const sum = createArgumentSizes();
  for (const [name, value] of environment) sum.add(variableLabel(name), name, value);
  const expanded = (field: "command" | "args") =>
    (container[field] ?? []).map((text, index) => {
      const what = `${field}[${index}]`;
      const word = expand(text, (name) => environment.get(name), what);
      sum.add(what, word);
      return word;
    });
  return {
    command: expanded("command"),
    args: expanded("args"),
    envs: [...environment].map(([key, value]) => ({ key, value: Buffer.from(value) })),
  };
}

/** ID mappings of the pod's user namespace, which the runtime applies to the files of all mounts. */
function mappingsOf({ linux }: ContainerConfigInput): Pick<Mount, "uidMappings" | "gidMappings"> {
  const { uids = [], gids = [] } = linux.securityContext?.namespaceOptions?.usernsOptions ?? {};
  return { uidMappings: uids, gidMappings: gids };
}

function addedMounts(additions: ContainerAdditions | undefined): readonly Mount[] {
  return (additions?.mounts ?? []).map(({ containerPath, hostPath, readOnly }) =>
    Mount.fromPartial({ containerPath, hostPath, readonly: readOnly }),
  );
}

function labelsOf({ pod, container, ownerLabels }: ContainerConfigInput): Record<string, string> {
  const { name, namespace, uid } = pod.metadata;
  return {
    ...ownerLabels,
    [podNameLabel]: name,
    [podNamespaceLabel]: namespace,
    [podUidLabel]: uid,
    [containerNameLabel]: container.name,
  };
}

/** Annotations from which an agent recovers a container that it did not start. (kubelet, kuberuntime/labels.go) */
function containerAnnotations(pod: Pod, container: Container, restartCount: number): Record<string, string> {
  const deletionGrace = pod.metadata.deletionGracePeriodSeconds;
  const terminationGrace = pod.spec.terminationGracePeriodSeconds;
  const preStop = container.lifecycle?.preStop;
  const ports = container.ports ?? [];
  return {
    [containerHashAnnotation]: containerHash(container),
    [containerRestartCountAnnotation]: String(restartCount),
    [resourcesAnnotation]: resourcesAnnotationValue(pod, container),
    [terminationMessagePathAnnotation]: terminationMessagePath(container) ?? "",
    [terminationMessagePolicyAnnotation]: container.terminationMessagePolicy ?? "File",
    ...(deletionGrace !== undefined && { [podDeletionGraceAnnotation]: String(deletionGrace) }),
    ...(terminationGrace !== undefined && { [podTerminationGraceAnnotation]: String(terminationGrace) }),
    ...(preStop && { [preStopHandlerAnnotation]: goJson(preStop) }),
    ...(ports.length > 0 && { [containerPortsAnnotation]: goJson(ports) }),
  };
}
