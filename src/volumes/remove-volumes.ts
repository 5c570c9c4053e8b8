import { CodedError, hasCode, messageOf, ignoreNotFound } from "../lib/errors.ts";
import type { FileChange, Host } from "../seams/host.ts";

/** Directories of plugins whose volumes outlive the pod: their content must never be deleted. */
const persistentPlugins = new Set(["csi", "local-volume", "nfs"].map((plugin) => `kubernetes.io~${plugin}`));
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
export async function removeVolumes(place: PodVolumesDirectory, signal: AbortSignal): Promise<void> {
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
