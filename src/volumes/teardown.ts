import {
  type MountLister,
  isAtOrBelow,
  isRemote,
  listMounts,
  mountsBelow,
  outermostMount,
  unmount,
  unmountPrivately,
} from "../host/mounts.ts";
import { aggregated } from "../lib/aggregate.ts";
import { CodedError, ignoreCode, ignoreNotFound, hasCode, messageOf } from "../lib/errors.ts";
import type { Host, FileChange } from "../seams/host.ts";
import type { RetainedDirectory } from "./persistent/unmounter.ts";
import { command } from "../seams/command.ts";
import { podDirectory, podsDirectory } from "../host/layout.ts";

export interface UnmountOptions {
  readonly list?: MountLister;
  /** Unpublishes volumes that need more than an unmount, after their subPath mounts are gone.
   *  @returns directories that must stay. */
  readonly unpublish?: () => Promise<readonly RetainedDirectory[]>;
  /** True if none of the pod's volumes outlives it: its directories may be removed with all content. */
  readonly isEphemeral?: boolean;
}

const uidPattern = /^[A-Za-z0-9][A-Za-z0-9._-]*$/;

/** Unmounts and removes the volumes of a pod, by its UID alone: everything else is read from the disk. Nothing is deleted
 *  through a mount, and links are not followed. Safe to repeat.
 *  @throws failed_precondition if something stays mounted; the reason why a directory must stay. */
export async function unmountAll(
  host: Host,
  rootDir: string,
  uid: string,
  signal: AbortSignal,
  { list = (stop) => listMounts(host, stop), unpublish, isEphemeral = false }: UnmountOptions = {},
): Promise<void> {
  const directory = await realDirectory(host, podDirectory(rootDir, checkUid(uid)), signal);
  if (directory === undefined) return;
  const unmountBelow = (path: string, but: readonly string[] = []) => unmountTree({ host, list }, path, but, signal);
  // A subPath mount keeps its volume busy.
  if (unpublish) await unmountBelow(`${directory}/volume-subpaths`);
  const retained = (await unpublish?.()) ?? [];
  const own = podDirectory(rootDir, uid);
  await unmountBelow(
    directory,
    retained.map(({ path }) => path.replace(own, directory)),
  );
  if (retained.length > 0) throw aggregated(retained.map(({ reason }) => reason));
  if (!isEphemeral) await removeVolumes({ host, uid, directory }, signal);
  const below = ["volumes", "plugins", "volume-subpaths", "volumeDevices"]
    .slice(isEphemeral ? 0 : 1)
    .map((name) => `${directory}/${name}`);
  await host.fs.apply(
    below.map((path) => ({ kind: "remove", path, recursive: true })),
    signal,
  );
}

/** Unmounts a directory and everything below.
 *  @param except directories to leave as they are. @throws failed_precondition if something stays mounted. */
async function unmountTree(
  { host, list }: { readonly host: Host; readonly list: MountLister },
  directory: string,
  except: readonly string[],
  signal: AbortSignal,
): Promise<void> {
  const isKept = (path: string) => except.some((one) => isAtOrBelow(path, one));
  const table = async () => (await list(signal)).filter(({ path }) => !isKept(path));
  const mounted = async () => mountsBelow(await table(), directory);
  const first = await table();
  const all = mountsBelow(first, directory);
  // Network mounts are left out: an unreachable server would delay the others.
  const local = mountsBelow(
    first.filter((mount) => !isRemote(mount)),
    directory,
  );
  const inMemory = new Set(first.filter(({ fsType }) => fsType === "tmpfs").map(({ path }) => path));
  const mounts = (await unmountTogether(host, local, inMemory, signal)) ? await mounted() : all;
  for (const path of mounts) {
    const outermost = outermostMount(path, mounts);
    await (outermost === path
      ? unmount(host, path, signal, inMemory.has(path))
      : unmountPrivately(host, path, outermost, signal));
  }
  const [left] = await mounted();
  if (left !== undefined) throw new CodedError("failed_precondition", `${left} is still mounted`);
}

/** Unmounts all non-nested mounts in one command, if there are several.
 *  @returns true if it tried; failures show in the next list of mounts. */
async function unmountTogether(
  host: Host,
  mounts: readonly string[],
  inMemory: ReadonlySet<string>,
  signal: AbortSignal,
): Promise<boolean> {
  const around = mounts.map((path) => outermostMount(path, mounts));
  const alone = mounts.filter((path) => around.filter((outermost) => outermost === path).length === 1);
  const apart = alone.filter((path) => outermostMount(path, mounts) === path);
  if (apart.length < 2) return false;
  // If one takes too long, each mount is then unmounted separately.
  const brief = apart.every((path) => inMemory.has(path));
  await ignoreCode(host.run(command("umount", [], apart), { brief, signal }), "deadline_exceeded");
  return true;
}

/** Real path of a pod's directory, as the kernel lists mounts; undefined if it does not exist. */
function realDirectory(host: Host, path: string, signal: AbortSignal): Promise<string | undefined> {
  return ignoreNotFound(host.fs.realpath(path, signal));
}

/** Removes a pod's directory once its volumes are unmounted. */
export async function removePodDirectory(host: Host, rootDir: string, uid: string, signal: AbortSignal): Promise<void> {
  await unmountAll(host, rootDir, uid, signal);
  const path = podDirectory(rootDir, uid);
  const isOwn = (await ignoreNotFound(host.fs.lstat(path, signal)))?.kind === "directory";
  // Volumes that a slow driver mounts meanwhile must stay.
  const inside = (isOwn ? await ignoreNotFound(host.fs.list(path, signal)) : undefined) ?? [];
  const others = inside.filter(({ name }) => name !== "volumes").map(({ name }) => `${path}/${name}`);
  await host.fs.apply(
    [...others.map((other) => ({ kind: "remove", path: other, recursive: true }) as const), { kind: "remove", path }],
    signal,
  );
}

/** UIDs of pods that have a directory. */
export async function listPodDirectories(host: Host, rootDir: string, signal: AbortSignal): Promise<readonly string[]> {
  const entries = (await ignoreNotFound(host.fs.list(podsDirectory(rootDir), signal))) ?? [];
  return entries.filter(({ kind, name }) => kind === "directory" && uidPattern.test(name)).map(({ name }) => name);
}

/** Validates a UID before it becomes part of a path: it may come from a label in the runtime, and must name a directory right
 *  below pods/. */
function checkUid(uid: string): string {
  if (!uidPattern.test(uid)) throw new CodedError("invalid_argument", `${JSON.stringify(uid)} is not a valid pod UID`);
  return uid;
}

/** Directories of plugins whose volumes outlive the pod: their content must never be deleted. */
const persistentPlugins = new Set(["csi", "iscsi", "local-volume", "nfs"].map((plugin) => `kubernetes.io~${plugin}`));
/** Files that the node itself writes next to a mount. */
const ownFiles = new Set(["vol_data.json.new"]);

interface PodVolumesDirectory {
  readonly host: Host;
  readonly uid: string;
  /** The pod's directory, with links resolved. */
  readonly directory: string;
}

/** Removes the directories of a pod's unmounted volumes. Directories of volumes that outlive the pod are removed one by one and
 *  only if empty, so that no data is deleted if a volume is still mounted or gets mounted meanwhile. Links are not followed.
 *  @throws failed_precondition, in the kubelet's words, for a directory that is not empty. */
async function removeVolumes(place: PodVolumesDirectory, signal: AbortSignal): Promise<void> {
  const { host, directory } = place;
  const path = `${directory}/volumes`;
  // A link in place of the directory is removed, its target is not.
  const isOwn = (await ignoreNotFound(host.fs.lstat(path, signal)))?.kind === "directory";
  for (const { name, kind } of isOwn ? await entries(host, path, signal) : []) {
    const plugin = `${path}/${name}`;
    if (kind === "directory" && persistentPlugins.has(name)) await removeEmptyVolumes(place, plugin, signal);
    else await host.fs.apply([{ kind: "remove", path: plugin, recursive: true }], signal);
  }
  await host.fs.apply([{ kind: "remove", path }], signal);
}

/** Removes the directories of one plugin's volumes, and the mount points in them, if they are empty. */
async function removeEmptyVolumes(
  { host, uid }: PodVolumesDirectory,
  plugin: string,
  signal: AbortSignal,
): Promise<void> {
  for (const { name, kind } of await entries(host, plugin, signal)) {
    const volume = `${plugin}/${name}`;
    const inside = kind === "directory" ? await entries(host, volume, signal) : [];
    const own = inside.filter((one) => one.kind === "directory" || ownFiles.has(one.name));
    const changes = [...own.map((one) => `${volume}/${one.name}`), volume].map(
      (path): FileChange => ({ kind: "remove", path }),
    );
    await host.fs.apply(changes, signal).catch((error: unknown) => {
      if (!hasCode(error, "failed_precondition")) throw error;
      const why = `failed to rmdir() volume at path ${volume}: ${messageOf(error)}`;
      throw new CodedError("failed_precondition", `orphaned pod ${JSON.stringify(uid)} found, but ${why}`, {
        cause: error,
      });
    });
  }
  await host.fs.apply([{ kind: "remove", path: plugin }], signal);
}

async function entries(host: Host, path: string, signal: AbortSignal) {
  return (await ignoreNotFound(host.fs.list(path, signal))) ?? [];
}
