import { localDevicesOf, podDirectory } from "../../host/layout.ts";
import { ignoreNotFound } from "../../lib/errors.ts";
import { timed } from "../../lib/timed.ts";
import type { RetainedDirectory, PersistentVolumeUnmounter, UnpublishDeps } from "./unmounter.ts";
import { volumesMappedFor, unmapDevice, unmapOrphans } from "./map-device.ts";
import { stagedLocalVolumes, unstageLocalVolume } from "./local-staging.ts";

export const localPluginName = "kubernetes.io/local-volume";

/** Unstages local volumes: file systems by the mount table alone, block devices by their bind mounts and links. */
export const localUnmounter: PersistentVolumeUnmounter = {
  pluginName: localPluginName,
  async unpublish(deps, uid, signal) {
    const links = `${podDirectory(deps.rootDir, uid)}/volumeDevices/kubernetes.io~local-volume`;
    const linked = namesOfKind(deps, links, "symlink", signal);
    const mapped = volumesMappedFor(deps, { all: localDevicesOf(deps.rootDir) }, uid, signal);
    const names = new Set((await Promise.all([linked, mapped])).flat());
    return (await Promise.all([...names].map((name) => unmapOrRetain(deps, uid, name, `${links}/${name}`)))).flat();
  },
  async listStaged(deps, _known, signal) {
    const devices = namesOfKind(deps, localDevicesOf(deps.rootDir), "directory", signal);
    return [...new Set([...(await stagedLocalVolumes(deps, signal)), ...(await devices)])];
  },
  async unstage(deps, name, signal) {
    const directory = `${localDevicesOf(deps.rootDir)}/${name}`;
    if ((await ignoreNotFound(deps.host.fs.lstat(directory, signal))) !== undefined) {
      const { clock, measures } = deps;
      if (!(await unmapOrphans(deps, directory, signal))) return false;
      const remove = () => ignoreNotFound(deps.host.fs.apply([{ kind: "remove", path: directory }], signal));
      await timed(clock, remove, (ms, failed) => measures.deviceUnmapped(localPluginName, ms, failed));
    }
    return unstageLocalVolume(deps, name, signal);
  },
};

/** @returns an empty list on success, otherwise the link to keep. */
async function unmapOrRetain(
  deps: UnpublishDeps,
  uid: string,
  name: string,
  link: string,
): Promise<readonly RetainedDirectory[]> {
  try {
    await unmapDevice(deps, `${localDevicesOf(deps.rootDir)}/${name}`, uid);
    await ignoreNotFound(deps.host.fs.apply([{ kind: "remove", path: link }]));
    return [];
  } catch (reason) {
    return [{ path: link, reason }];
  }
}

async function namesOfKind(
  { host }: UnpublishDeps,
  directory: string,
  wanted: "symlink" | "directory",
  signal: AbortSignal,
): Promise<readonly string[]> {
  const found = (await ignoreNotFound(host.fs.list(directory, signal))) ?? [];
  return found.filter(({ kind }) => kind === wanted).map(({ name }) => name);
}
