import { posix } from "node:path";
import { pullRecordsDirectory } from "../host/image-paths.ts";
import { missingDirectories, ownDirectory, readOwnershipRecord } from "../host/ownership-record.ts";
import { shutdownRecordFile } from "../host/shutdown-file.ts";
import { podResourcesDirectoryOf } from "../host/plugin-paths.ts";
import { listMounts, type Mount, mountsBelow } from "../host/mounts.ts";
import { CodedError, ignoreNotFound } from "../lib/errors.ts";
import type { Host, HostFs } from "../seams/host.ts";
import type { Sharing } from "../seams/provider.ts";
import type { Runtime } from "../seams/runtime.ts";
import type { Findings, FoundPod } from "./findings.ts";
import { type OwnedPod, ownedPods } from "./owned.ts";
import { directoryAt, entries, stagedVolumes } from "./staged.ts";

export interface SurveyDeps {
  readonly host: Host;
  readonly runtime: Pick<Runtime, "listPodSandbox" | "listContainers" | "belongings">;
  readonly sharing: Sharing;
  readonly nodeName: string;
  readonly rootDir: string;
  /** Directories of the pods' logs and of the symbolic links for log collectors. */
  readonly podLogsDir: string;
  readonly logLinksDir: string;
  /** Cgroups of QoS classes, the deepest first; empty if graftlet creates none. */
  readonly tiers: readonly string[];
  /** The cgroup of a pod below one of them. */
  readonly podGroup: (tier: string, uid: string) => string;
  /** Files of resource managers, relative to the root directory. */
  readonly managerFiles: readonly string[];
  /** True if the node has static pods of its own, rather than a kubelet's. */
  readonly staticPods: boolean;
  /** Names of the child cgroups. */
  readonly subgroups: (path: string, signal: AbortSignal) => Promise<readonly string[]>;
}

/** UIDs as assigned by the API server; static pods have others. */
const apiUids = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;
const anyUid = /^[A-Za-z0-9][-A-Za-z0-9_.]*$/;

/** Finds everything that a node created on its target, read-only. The content of the root directory counts as the node's only if
 *  it contains graftlet's own directory; that of the runtime, by labels or by the pod's directory.
 *  @throws failed_precondition, one sentence, if the root directory belongs to another node; unavailable if the target or its
 *  runtime does not answer. */
export async function survey(deps: SurveyDeps, signal: AbortSignal): Promise<Findings> {
  const { host, runtime, sharing, nodeName } = deps;
  const root = await realDirectory(host.fs, deps.rootDir, signal);
  const own = root === undefined ? undefined : await directoryAt(host.fs, ownDirectory(root), signal);
  const record = own === undefined || root === undefined ? undefined : await readOwnershipRecord(host.fs, root, signal);
  if (record && record.node !== nodeName) throw anothersRoot(deps, record.node);
  const home = own === undefined ? undefined : root;
  const directories =
    home === undefined ? [] : await podDirectories(host.fs, home, deps.staticPods ? anyUid : apiUids, signal);
  const sandboxes = await runtime.listPodSandbox(undefined, signal);
  const containers = await runtime.listContainers(undefined, signal);
  const owned = ownedPods({ sandboxes, containers, directories, sharing, nodeName, staticPods: deps.staticPods });
  const onHost = await readHostState(deps, signal);
  const monitors = home === undefined ? [] : [podResourcesDirectoryOf(home)];
  const made = record ? await standing(host.fs, [...record.made, ...monitors], signal) : [];
  const ofDrivers = root === undefined ? new Set<string>() : await withDriverVolumes(host.fs, root, owned.pods, signal);
  return {
    pods: owned.pods.map((pod) => foundPod(pod, root, { ...onHost, ofDrivers, podGroup: deps.podGroup })),
    staged: home === undefined ? [] : await stagedVolumes(host.fs, home, onHost.mounts, signal),
    belongings: (await runtime.belongings?.(signal)) ?? [],
    tiers: own === undefined ? [] : onHost.tiers.filter(({ isThere }) => isThere).map(({ path }) => path),
    files:
      home === undefined
        ? []
        : await ownFiles(host.fs, home, { managers: deps.managerFiles, noted: record?.files ?? [] }, signal),
    pullRecords: home === undefined ? undefined : await directoryAt(host.fs, pullRecordsDirectory(home), signal),
    ownDirectory: own,
    made: made.toSorted((a, b) => b.length - a.length),
    strangers: owned.strangers,
  };
}

function anothersRoot({ rootDir, nodeName }: SurveyDeps, owner: string): CodedError {
  return new CodedError(
    "failed_precondition",
    `--root-dir ${JSON.stringify(rootDir)} belongs to node ${owner}, not to ${nodeName}: give --hostname-override ${owner}, or the root directory of ${nodeName}`,
  );
}

/** Mounts, logs, links and cgroups of all pods on the host. */
interface HostState {
  readonly mounts: readonly Mount[];
  readonly logs: readonly string[];
  /** Links with their targets. */
  readonly links: readonly { readonly path: string; readonly target: string }[];
  readonly tiers: readonly { readonly path: string; readonly isThere: boolean; readonly below: readonly string[] }[];
}

async function readHostState(deps: SurveyDeps, signal: AbortSignal): Promise<HostState> {
  const { fs } = deps.host;
  const names = async (path: string, kind: string) =>
    (await entries(fs, path, signal)).filter((entry) => entry.kind === kind).map(({ name }) => `${path}/${name}`);
  const links = (await names(deps.logLinksDir, "symlink")).map(async (path) => ({
    path,
    target: (await ignoreNotFound(fs.readlink(path, signal))) ?? "",
  }));
  const tiers = deps.tiers.map(async (path) => ({
    path,
    isThere: (await deps.subgroups(posix.dirname(path), signal)).includes(posix.basename(path)),
    below: await deps.subgroups(path, signal),
  }));
  return {
    mounts: await listMounts(deps.host, signal),
    logs: await names(deps.podLogsDir, "directory"),
    links: await Promise.all(links),
    tiers: await Promise.all(tiers),
  };
}

function foundPod(
  { uid, containers, sandboxIds, ...pod }: OwnedPod,
  root: string | undefined,
  onHost: HostState & Pick<SurveyDeps, "podGroup"> & { readonly ofDrivers: ReadonlySet<string> },
): FoundPod {
  const logs = onHost.logs.filter((path) => path.endsWith(`_${uid}`));
  const directory = pod.hasDirectory ? `${root}/pods/${uid}` : undefined;
  const [namespace, name] = posix.basename(logs[0] ?? "").split("_");
  return {
    uid,
    name: pod.name ?? (name === undefined ? uid : `${namespace}/${name}`),
    containers,
    sandboxIds,
    cgroups: onHost.tiers.flatMap(({ path, below }) => {
      const group = onHost.podGroup(path, uid);
      return below.includes(posix.basename(group)) ? [group] : [];
    }),
    directory,
    mounts: directory === undefined ? [] : mountsBelow(onHost.mounts, directory),
    ofDrivers: onHost.ofDrivers.has(uid),
    logs,
    links: onHost.links
      .filter(({ target }) => logs.some((log) => target.startsWith(`${log}/`)))
      .map(({ path }) => path),
  };
}

/** UIDs of pods with CSI volumes in their directories. */
async function withDriverVolumes(
  fs: HostFs,
  root: string,
  pods: readonly OwnedPod[],
  signal: AbortSignal,
): Promise<ReadonlySet<string>> {
  const placesOf = (uid: string) =>
    ["volumes", "volumeDevices"].map((kind) => `${root}/pods/${uid}/${kind}/kubernetes.io~csi`);
  const uids = pods.filter(({ hasDirectory }) => hasDirectory).map(({ uid }) => uid);
  const there = new Set(await standing(fs, uids.flatMap(placesOf), signal));
  return new Set(uids.filter((uid) => placesOf(uid).some((path) => there.has(path))));
}

/** UIDs of pods that have a directory. A symbolic link in place of a pod's directory, or of their parent, is not the node's and
 *  is not followed. */
async function podDirectories(fs: HostFs, root: string, uids: RegExp, signal: AbortSignal): Promise<readonly string[]> {
  const all = await directoryAt(fs, `${root}/pods`, signal);
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
  const others = await standing(fs, [shutdownRecordFile(root), ...noted], signal);
  return [...(await filesOfManagers(fs, root, managers, signal)), ...others];
}

/** Existing files of resource managers. Their directories may hold files of others, such as plugins; a directory that is a symbolic link
 *  is ignored. */
async function filesOfManagers(
  fs: HostFs,
  root: string,
  files: readonly string[],
  signal: AbortSignal,
): Promise<readonly string[]> {
  const directories = [...new Set(files.map((path) => posix.dirname(`${root}/${path}`)))];
  const own = await Promise.all(directories.map((path) => directoryAt(fs, path, signal)));
  return standing(
    fs,
    files.map((path) => `${root}/${path}`).filter((path) => own.includes(posix.dirname(path))),
    signal,
  );
}

async function realDirectory(fs: HostFs, path: string, signal: AbortSignal): Promise<string | undefined> {
  return ignoreNotFound(fs.realpath(path, signal));
}

async function standing(fs: HostFs, paths: readonly string[], signal: AbortSignal): Promise<readonly string[]> {
  const gone = new Set(await missingDirectories(fs, paths, signal));
  return paths.filter((path) => !gone.has(path));
}
