import { posix } from "node:path";
import { ignoreNotFound } from "../../lib/errors.ts";
import { podSubdirectory } from "../paths.ts";
import type { SetUpDeps } from "../plugins/plugin.ts";
import type { PersistentVolumePlugin, VolumeUse } from "./plugin.ts";
import { podDirectory } from "../../host/layout.ts";

const privateMode = 0o750;

/** Links a block device into a pod's directory, where the runtime follows it. A link from an earlier boot may point to another
 *  device, and is replaced.
 *  @see https://kubernetes.io/docs/concepts/storage/persistent-volumes/#raw-block-volume-support */
export async function linkDevice(
  { host, rootDir }: Pick<SetUpDeps, "host" | "rootDir">,
  { pluginName }: Pick<PersistentVolumePlugin, "pluginName">,
  { pod, volume }: Pick<VolumeUse, "pod" | "volume">,
  device: string,
  signal: AbortSignal,
): Promise<string> {
  const { uid } = pod.metadata;
  const path = `${podDirectory(rootDir, uid)}/volumeDevices/${pluginName.replace("/", "~")}/${volume.metadata.name}`;
  // A correct link is kept: a later process finds the device by it.
  if ((await ignoreNotFound(host.fs.lstat(path, signal)))?.kind === "symlink")
    if ((await ignoreNotFound(host.fs.readlink(path, signal))) === device) return path;
  const around = { path: posix.dirname(path), mode: privateMode };
  await host.fs.apply(
    [
      ...podSubdirectory(rootDir, uid, "volumeDevices", around),
      { kind: "remove", path },
      { kind: "symlink", path, target: device },
    ],
    signal,
  );
  return path;
}
