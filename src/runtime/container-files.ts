import { posix } from "node:path";
import { Mount } from "../gen/cri.ts";
import type { Container, Pod } from "../objects.ts";
import type { FileChange } from "../seams/host.ts";
import { absolutePath } from "./mounts.ts";

const hostsPath = "/etc/hosts";
const defaultTerminationPath = "/dev/termination-log";

export interface ContainerFilesInput {
  readonly pod: Pod;
  readonly container: Container;
  /** Directory of the pod on the target: `<root>/pods/<uid>`. */
  readonly podDirectory: string;
  /** Directory of the pod's logs on the target. */
  readonly logDirectory: string;
  /** Content of /etc/hosts; undefined if the node does not manage it for this pod. */
  readonly hostsFile: string | undefined;
  /** Unique among the runs of this container. */
  readonly instance: string;
  readonly selinux: boolean;
}

/** Files that a container needs on the target before it is created, and their mounts. */
export interface ContainerFiles {
  readonly changes: readonly FileChange[];
  readonly mounts: readonly Mount[];
}

/** A container's log directory, its pod's hosts file and an empty termination message file, with the kubelet's modes.
 *  @see https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/ */
export function containerFiles(input: ContainerFilesInput): ContainerFiles {
  const logs: FileChange = {
    kind: "mkdir",
    path: posix.join(input.logDirectory, input.container.name),
    mode: 0o755,
    parents: true,
  };
  const podDirectory: FileChange = { kind: "mkdir", path: input.podDirectory, mode: 0o750, parents: true };
  const parts = [hostsFile(input), terminationMessage(input)].filter((part) => part !== undefined);
  return {
    changes: [logs, podDirectory, ...parts.flatMap(({ changes }) => changes)],
    mounts: parts.flatMap(({ mounts }) => mounts),
  };
}

/** Path of the termination message in the container; undefined if the spec disables it. */
export function terminationMessagePath({ terminationMessagePath: path }: Container): string | undefined {
  return path === "" ? undefined : absolutePath(path ?? defaultTerminationPath);
}

function hostsFile({
  container,
  podDirectory,
  hostsFile: data,
  selinux,
}: ContainerFilesInput): ContainerFiles | undefined {
  if (data === undefined || container.volumeMounts?.some(({ mountPath }) => mountPath === hostsPath)) return undefined;
  const path = posix.join(podDirectory, "etc-hosts");
  return {
    changes: [{ kind: "write", path, data, mode: 0o644 }],
    mounts: [Mount.fromPartial({ containerPath: hostsPath, hostPath: path, selinuxRelabel: selinux })],
  };
}

/** World-writable: the container may run as any user. */
function terminationMessage({
  container,
  podDirectory,
  instance,
  selinux,
}: ContainerFilesInput): ContainerFiles | undefined {
  const containerPath = terminationMessagePath(container);
  if (containerPath === undefined) return undefined;
  const directory = posix.join(podDirectory, "containers", container.name);
  const path = posix.join(directory, instance);
  return {
    changes: [
      { kind: "mkdir", path: posix.dirname(directory), mode: 0o750 },
      { kind: "mkdir", path: directory, mode: 0o750 },
      { kind: "write", path, data: "", mode: 0o666 },
    ],
    mounts: [Mount.fromPartial({ containerPath, hostPath: path, selinuxRelabel: selinux })],
  };
}
