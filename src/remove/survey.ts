import { posix } from "node:path";
import {
  pullRecordsDirectory,
  podResourcesDirectoryOf,
  shutdownRecordFile,
  ownDirectory,
  podsDirectory,
  podDirectory,
} from "../host/layout.ts";
import { missingDirectories, readOwnershipRecord } from "../host/ownership-record.ts";
import { listMounts, mountsBelow } from "../host/mounts.ts";
import { CodedError, ignoreNotFound } from "../lib/errors.ts";
import type { Host, HostFs } from "../seams/host.ts";
import type { Sharing } from "../seams/provider.ts";
import type { Runtime } from "../seams/runtime.ts";
import type { Findings, FoundPod } from "./findings.ts";
import { type OwnedPod, ownedPods } from "./owned.ts";
import { directoryAt, entries, findStagedVolumes } from "./staged-volumes.ts";

export interface SurveyDeps {
  readonly host: Host;
  readonly runtime: Pick<Runtime, "listPodSandbox" | "listContainers" | "ownedResources">;
  readonly sharing: Sharing;
  readonly nodeName: string;
  readonly rootDir: string;
  /** Directories of the pods' logs and of the symbolic links for log collectors. */
  readonly podLogsDir: string;
  readonly logLinksDir: string;
  /** Cgroups of QoS classes, the deepest first; empty if graftlet creates none. */
  readonly qosCgroups: readonly string[];
  /** Path of a pod's cgroup. @param tier path of the QoS class's cgroup. */
  readonly podCgroup: (tier: string, uid: string) => string;
  /** Files of resource managers, relative to the root directory. */
  readonly managerFiles: readonly string[];
  /** True if the node has sources of static pods; otherwise directories of static pods belong to a kubelet. */
  readonly staticPods: boolean;
  readonly childCgroups: (path: string, signal: AbortSignal) => Promise<readonly string[]>;
}

/** Format of UIDs that the API server assigns; UIDs of static pods have other formats. */
const apiUidPattern = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;
const anyUidPattern = /^[A-Za-z0-9][-A-Za-z0-9_.]*$/;

/** Finds everything that a node created on its target, read-only. The content of the root directory counts as the node's only if it
 *  contains graftlet's own directory; sandboxes and containers in the runtime are recognized by labels or by the pod's directory.
 *  @throws failed_precondition, one sentence, if the root directory belongs to another node; unavailable if the target or its runtime
 *  does not answer. */
export async function survey(deps: SurveyDeps, signal: AbortSignal): Promise<Findings> {
  const { host, runtime, sharing, nodeName } = deps;
  const root = await realDirectory(host.fs, deps.rootDir, signal);
  const own = root === undefined ? undefined : await directoryAt(host.fs, ownDirectory(root), signal);
  const record = own === undefined || root === undefined ? undefined : await readOwnershipRecord(host.fs, root, signal);
  if (record && record.node !== nodeName) throw wrongNodeError(deps, record.node);
  const home = own === undefined ? undefined : root;
  const directories =
    home === undefined
      ? []
      : await podDirectories(host.fs, home, deps.staticPods ? anyUidPattern : apiUidPattern, signal);
  const sandboxes = await runtime.listPodSandbox(undefined, signal);
  const containers = await runtime.listContainers(undefined, signal);
  const owned = ownedPods({ sandboxes, containers, directories, sharing, nodeName, staticPods: deps.staticPods });
  const onHost = await readHostState(deps, signal);
  const monitors = home === undefined ? [] : [podResourcesDirectoryOf(home)];
  const createdDirectories = record ? await existing(host.fs, [...record.made, ...monitors], signal) : [];
  const csiPodUids =
    root === undefined ? new Set<string>() : await podsWithCsiVolumes(host.fs, root, owned.pods, signal);
  return {
    pods: owned.pods.map((pod) => foundPod(pod, root, { ...onHost, csiPodUids, podCgroup: deps.podCgroup })),
    staged: home === undefined ? [] : await findStagedVolumes(host.fs, home, onHost.mounts, signal),
    ownedResources: (await runtime.ownedResources?.(signal)) ?? [],
    qosCgroups: own === undefined ? [] : onHost.qosCgroups.filter(({ exists }) => exists).map(({ path }) => path),
    files:
      home === undefined
        ? []
        : await ownFiles(host.fs, home, { managers: deps.managerFiles, noted: record?.files ?? [] }, signal),
    pullRecords: home === undefined ? undefined : await directoryAt(host.fs, pullRecordsDirectory(home), signal),
    ownDirectory: own,
    createdDirectories: createdDirectories.toSorted((a, b) => b.length - a.length),
    unowned: owned.strangers,
  };
}

function wrongNodeError({ rootDir, nodeName }: SurveyDeps, owner: string): CodedError {
  return new CodedError(
    "failed_precondition",
    `--root-dir ${JSON.stringify(rootDir)} belongs to node ${owner}, not to ${nodeName}: give --hostname-override ${owner}, or the root directory of ${nodeName}`,
  );
}

/** Mounts, logs, links and cgroups of all pods on the host. */
type HostState = Awaited<ReturnType<typeof readHostState>>;

async function readHostState(deps: SurveyDeps, signal: AbortSignal) {
  const { fs } = deps.host;
  const names = async (path: string, kind: string) =>
    (await entries(fs, path, signal)).filter((entry) => entry.kind === kind).map(({ name }) => `${path}/${name}`);
  const links = (await names(deps.logLinksDir, "symlink")).map(async (path) => ({
    path,
    target: (await ignoreNotFound(fs.readlink(path, signal))) ?? "",
  }));
  const qosCgroups = deps.qosCgroups.map(async (path) => ({
    path,
    exists: (await deps.childCgroups(posix.dirname(path), signal)).includes(posix.basename(path)),
    below: await deps.childCgroups(path, signal),
  }));
  return {
    mounts: await listMounts(deps.host, signal),
    logs: await names(deps.podLogsDir, "directory"),
    links: await Promise.all(links),
    qosCgroups: await Promise.all(qosCgroups),
  };
}

function foundPod(
  { uid, containers, sandboxIds, ...pod }: OwnedPod,
  root: string | undefined,
  onHost: HostState & Pick<SurveyDeps, "podCgroup"> & { readonly csiPodUids: ReadonlySet<string> },
): FoundPod {
  const logs = onHost.logs.filter((path) => path.endsWith(`_${uid}`));
  const directory = pod.hasDirectory ? `${root}/pods/${uid}` : undefined;
  const [namespace, name] = posix.basename(logs[0] ?? "").split("_");
  return {
    uid,
    name: pod.name ?? (name === undefined ? uid : `${namespace}/${name}`),
    containers,
    sandboxIds,
    cgroups: onHost.qosCgroups.flatMap(({ path, below }) => {
      const group = onHost.podCgroup(path, uid);
      return below.includes(posix.basename(group)) ? [group] : [];
    }),
    directory,
    mounts: directory === undefined ? [] : mountsBelow(onHost.mounts, directory),
    hasCsiVolumes: onHost.csiPodUids.has(uid),
    logs,
    links: onHost.links
      .filter(({ target }) => logs.some((log) => target.startsWith(`${log}/`)))
      .map(({ path }) => path),
  };
}

/** UIDs of pods with CSI volumes in their directories. */
async function podsWithCsiVolumes(
  fs: HostFs,
  root: string,
  pods: readonly OwnedPod[],
  signal: AbortSignal,
): Promise<ReadonlySet<string>> {
  const placesOf = (uid: string) =>
    ["volumes", "volumeDevices"].map((kind) => `${podDirectory(root, uid)}/${kind}/kubernetes.io~csi`);
  const uids = pods.filter(({ hasDirectory }) => hasDirectory).map(({ uid }) => uid);
  const there = new Set(await existing(fs, uids.flatMap(placesOf), signal));
  return new Set(uids.filter((uid) => placesOf(uid).some((path) => there.has(path))));
}

/** UIDs of pods that have a directory. A symbolic link in place of a pod's directory, or of their parent, is not the node's and
 *  is not followed. */
async function podDirectories(fs: HostFs, root: string, uids: RegExp, signal: AbortSignal): Promise<readonly string[]> {
  const all = await directoryAt(fs, podsDirectory(root), signal);
  if (all === undefined) return [];
  const found = await entries(fs, all, signal);
  return found.filter(({ kind, name }) => kind === "directory" && uids.test(name)).map(({ name }) => name);
}

/** Files of the node outside graftlet's own directory. @param noted files listed in the ownership record. */
async function ownFiles(
  fs: HostFs,
  root: string,
  { managers, noted }: { readonly managers: readonly string[]; readonly noted: readonly string[] },
  signal: AbortSignal,
): Promise<readonly string[]> {
  const others = await existing(fs, [shutdownRecordFile(root), ...noted], signal);
  return [...(await filesOfManagers(fs, root, managers, signal)), ...others];
}

/** Existing files of resource managers. Their directories may contain other files, such as those of plugins. A directory that is a
 *  symbolic link is ignored. */
async function filesOfManagers(
  fs: HostFs,
  root: string,
  files: readonly string[],
  signal: AbortSignal,
): Promise<readonly string[]> {
  const directories = [...new Set(files.map((path) => posix.dirname(`${root}/${path}`)))];
  const own = await Promise.all(directories.map((path) => directoryAt(fs, path, signal)));
  return existing(
    fs,
    files.map((path) => `${root}/${path}`).filter((path) => own.includes(posix.dirname(path))),
    signal,
  );
}

async function realDirectory(fs: HostFs, path: string, signal: AbortSignal): Promise<string | undefined> {
  return ignoreNotFound(fs.realpath(path, signal));
}

async function existing(fs: HostFs, paths: readonly string[], signal: AbortSignal): Promise<readonly string[]> {
  const gone = new Set(await missingDirectories(fs, paths, signal));
  return paths.filter((path) => !gone.has(path));
}
