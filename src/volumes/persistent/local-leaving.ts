import { localDevicesOf } from "../../host/plugin-paths.ts";
import { ignoreNotFound } from "../../lib/errors.ts";
import { timed } from "../../lib/timed.ts";
import { podDirectory } from "../paths.ts";
import type { Kept, Leaving, UnpublishDeps } from "./leaving.ts";
import { mappedTo, unmapDevice, unmapOrphans } from "./map-device.ts";
import { stagedVolumes, unstage } from "./staged.ts";

export const localPlugin = "kubernetes.io/local-volume";

/** Unstages local volumes: file systems by the mount table alone, block devices by their bind mounts and links. */
export const localLeaving: Leaving = {
  plugin: localPlugin,
  async unpublish(deps, uid, signal) {
    const links = `${podDirectory(deps.rootDir, uid)}/volumeDevices/kubernetes.io~local-volume`;
    const linked = namesIn(deps, links, "symlink", signal);
    const mapped = mappedTo(deps, { all: localDevicesOf(deps.rootDir) }, uid, signal);
    const names = new Set((await Promise.all([linked, mapped])).flat());
    return (await Promise.all([...names].map((name) => unmapped(deps, uid, name, `${links}/${name}`)))).flat();
  },
  async staged(deps, _known, signal) {
    const devices = namesIn(deps, localDevicesOf(deps.rootDir), "directory", signal);
    return [...new Set([...(await stagedVolumes(deps, signal)), ...(await devices)])];
  },
  async unstage(deps, name, signal) {
    const directory = `${localDevicesOf(deps.rootDir)}/${name}`;
    if ((await ignoreNotFound(deps.host.fs.lstat(directory, signal))) !== undefined) {
      const { clock, measures } = deps;
      if (!(await unmapOrphans(deps, directory, signal))) return false;
      const remove = () => ignoreNotFound(deps.host.fs.apply([{ do: "remove", path: directory }], signal));
      await timed(clock, remove, (ms, failed) => measures.deviceUnmapped(localPlugin, ms, failed));
    }
    return unstage(deps, name, signal);
  },
};

/** @returns an empty list on success, otherwise the link to keep. */
async function unmapped(deps: UnpublishDeps, uid: string, name: string, link: string): Promise<readonly Kept[]> {
  try {
    await unmapDevice(deps, `${localDevicesOf(deps.rootDir)}/${name}`, uid);
    await ignoreNotFound(deps.host.fs.apply([{ do: "remove", path: link }]));
    return [];
  } catch (why) {
    return [{ path: link, why }];
  }
}

async function namesIn(
  { host }: UnpublishDeps,
  directory: string,
  wanted: "symlink" | "directory",
  signal: AbortSignal,
): Promise<readonly string[]> {
  const found = (await ignoreNotFound(host.fs.list(directory, signal))) ?? [];
  return found.filter(({ kind }) => kind === wanted).map(({ name }) => name);
}
