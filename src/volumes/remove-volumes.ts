import { CodedError, hasCode, messageOf, unlessGone } from "../lib/errors.ts";
import type { FileChange, Host } from "../seams/host.ts";

/** Directories of plugins whose volumes outlive the pod. What is in such a volume is nobody's to delete. */
const lasting = new Set(["csi", "local-volume", "nfs"].map((plugin) => `kubernetes.io~${plugin}`));
/** What the node itself writes beside a mount. */
const ownFiles = new Set(["vol_data.json.new"]);

interface Place {
  readonly host: Host;
  readonly uid: string;
  /** The pod's, without links. */
  readonly directory: string;
}

/** Removes the directories of a pod's volumes, which are unmounted. Those of volumes that outlive the pod go only when they are empty,
 *  one by one: were one still mounted, or were it about to be, nothing in it would be deleted. Links are not followed.
 *  @throws failed_precondition in the kubelet's words for what has to stay. */
export async function removeVolumes(place: Place, signal: AbortSignal): Promise<void> {
  const { host, directory } = place;
  const path = `${directory}/volumes`;
  // A link in its place goes, and what it leads to stays.
  const isOwn = (await unlessGone(host.fs.lstat(path, signal)))?.kind === "directory";
  for (const { name, kind } of isOwn ? await entries(host, path, signal) : []) {
    const plugin = `${path}/${name}`;
    if (kind === "directory" && lasting.has(name)) await removeEmptied(place, plugin, signal);
    else await host.fs.apply([{ do: "remove", path: plugin, recursive: true }], signal);
  }
  await host.fs.apply([{ do: "remove", path }], signal);
}

/** Removes the directories of one plugin's volumes, and the mount points in them. */
async function removeEmptied({ host, uid }: Place, plugin: string, signal: AbortSignal): Promise<void> {
  for (const { name, kind } of await entries(host, plugin, signal)) {
    const volume = `${plugin}/${name}`;
    const inside = kind === "directory" ? await entries(host, volume, signal) : [];
    const own = inside.filter((one) => one.kind === "directory" || ownFiles.has(one.name));
    const changes = [...own.map((one) => `${volume}/${one.name}`), volume].map(
      (path): FileChange => ({ do: "remove", path }),
    );
    await host.fs.apply(changes, signal).catch((error: unknown) => {
      if (!hasCode(error, "failed_precondition")) throw error;
      const why = `failed to rmdir() volume at path ${volume}: ${messageOf(error)}`;
      throw new CodedError("failed_precondition", `orphaned pod ${JSON.stringify(uid)} found, but ${why}`, {
        cause: error,
      });
    });
  }
  await host.fs.apply([{ do: "remove", path: plugin }], signal);
}

async function entries(host: Host, path: string, signal: AbortSignal) {
  return (await unlessGone(host.fs.list(path, signal))) ?? [];
}
