import { posix } from "node:path";
import { Mount } from "../gen/cri.ts";
import type { Clock } from "../lib/clock.ts";
import type { Container, Pod } from "../objects.ts";
import { podLogDirectory } from "../pod/log-paths.ts";
import type { FileChange, HostFs } from "../seams/host.ts";
import { absolutePath } from "./mounts.ts";

const hostsPath = "/etc/hosts";
const defaultTerminationPath = "/dev/termination-log";

interface FileSettings {
  readonly rootDirectory: string;
  readonly podLogsDirectory: string;
}

interface CreateFilesDeps {
  readonly settings: FileSettings;
  readonly fs: Pick<HostFs, "apply">;
  readonly facts: (signal: AbortSignal) => Promise<{ readonly selinux: boolean }>;
}

export interface ContainerFilesInput {
  readonly pod: Pod;
  readonly container: Container;
  /** Content of /etc/hosts; undefined if the node does not manage it for this pod. */
  readonly hostsFile: string | undefined;
  /** Unique among the runs of this container. */
  readonly instance: string;
  readonly selinux: boolean;
}

/** Files that a container needs on the target before it is created, and their mounts. */
export interface ContainerFiles {
  readonly changes: readonly FileChange[];
  /** The last of the changes, which writes the pod's hosts file in place. */
  readonly hosts: readonly FileChange[];
  readonly mounts: readonly Mount[];
}

/** A container's log directory, its pod's hosts file and an empty termination message file, with the kubelet's modes.
 *  @see https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/ */
export function containerFiles(settings: FileSettings, given: ContainerFilesInput): ContainerFiles {
  const input = { ...given, podDirectory: posix.join(settings.rootDirectory, "pods", given.pod.metadata.uid) };
  const logs: FileChange = {
    kind: "mkdir",
    path: posix.join(podLogDirectory(settings.podLogsDirectory, input.pod), input.container.name),
    mode: 0o755,
    parents: true,
  };
  const podDirectory: FileChange = { kind: "mkdir", path: input.podDirectory, mode: 0o750, parents: true };
  const [hosts, message] = [hostsFile(input), terminationMessage(input)];
  return {
    changes: [logs, podDirectory, ...message.changes, ...hosts.changes],
    hosts: hosts.changes,
    mounts: [...hosts.mounts, ...message.mounts],
  };
}

/** Files of a container that were created before its sandbox had addresses. */
export interface CreatedFiles {
  /** Name of the termination message file. */
  readonly instance: string;
  /** Content of the hosts file. */
  readonly hostsFile: string;
}

/** Creates the files of a container in a new sandbox. @param hostsFile expected content of the hosts file: the pod has no address yet.
 *  @param attempt of the sandbox. */
export async function createContainerFiles(
  { settings, fs, facts }: CreateFilesDeps,
  {
    attempt,
    hostsFile,
    ...of
  }: Pick<ContainerFilesInput, "pod" | "container"> & { readonly hostsFile: string; readonly attempt: number },
  signal: AbortSignal,
): Promise<CreatedFiles> {
  const { selinux } = await facts(signal);
  const instance = instanceName(attempt);
  await fs.apply(containerFiles(settings, { ...of, hostsFile, instance, selinux }).changes, signal);
  return { instance, hostsFile };
}

/** Creates the files of a container, or completes those that `createContainerFiles` has created: their hosts file counts as present in
 *  the mounts, and is written again once its content is known, if that differs.
 *  @returns their mounts; `hostsWritten` resolves when the hosts file is complete. */
export async function completeContainerFiles(
  { settings, fs, clock }: Omit<CreateFilesDeps, "facts"> & { readonly clock: Pick<Clock, "jitter"> },
  given: Omit<ContainerFilesInput, "hostsFile" | "instance"> & {
    readonly hostsFile: Promise<string | undefined>;
    readonly created: CreatedFiles | undefined;
  },
  signal: AbortSignal,
): Promise<Pick<ContainerFiles, "mounts"> & { readonly hostsWritten: Promise<void> }> {
  const { created } = given;
  const instance = created?.instance ?? instanceName(clock.jitter(0, 2 ** 32));
  const files = (hostsFile: string | undefined) => containerFiles(settings, { ...given, instance, hostsFile });
  if (!created) {
    const { mounts, changes } = files(await given.hostsFile);
    await fs.apply(changes, signal);
    return { mounts, hostsWritten: Promise.resolve() };
  }
  const hostsWritten = given.hostsFile.then((text) =>
    text === created.hostsFile ? undefined : fs.apply(files(text).hosts, signal),
  );
  // Prevents an unhandled rejection if the caller fails before it awaits this.
  hostsWritten.catch(() => undefined);
  return { mounts: files("").mounts, hostsWritten };
}

/** Eight hexadecimal digits. */
export function instanceName(number: number): string {
  return Math.floor(number).toString(16).padStart(8, "0");
}

/** Path of the termination message in the container; undefined if the spec disables it. */
export function terminationMessagePath({ terminationMessagePath: path }: Container): string | undefined {
  return path === "" ? undefined : absolutePath(path ?? defaultTerminationPath);
}

interface PodFilesInput extends ContainerFilesInput {
  readonly podDirectory: string;
}

type MountedFiles = Pick<ContainerFiles, "changes" | "mounts">;
const noFiles: MountedFiles = { changes: [], mounts: [] };

function hostsFile({ container, podDirectory, hostsFile: data, selinux }: PodFilesInput): MountedFiles {
  if (data === undefined || container.volumeMounts?.some(({ mountPath }) => mountPath === hostsPath)) return noFiles;
  const path = posix.join(podDirectory, "etc-hosts");
  return {
    changes: [{ kind: "write", path, data, mode: 0o644 }],
    mounts: [Mount.fromPartial({ containerPath: hostsPath, hostPath: path, selinuxRelabel: selinux })],
  };
}

/** World-writable: the container may run as any user. */
function terminationMessage({ container, podDirectory, instance, selinux }: PodFilesInput): MountedFiles {
  const containerPath = terminationMessagePath(container);
  if (containerPath === undefined) return noFiles;
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
