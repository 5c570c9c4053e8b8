import { attachLoopDevice, releaseDevicePath } from "../../host/loop-device.ts";
import { CodedError, codeOf, messageOf, ignoreNotFound } from "../../lib/errors.ts";
import { podReference } from "../../pod/reference.ts";
import { VolumeStepError } from "../failure.ts";
import type { SetUpDeps } from "../plugins/plugin.ts";
import { checkNoLink } from "../paths.ts";
import { mount } from "./bind-mount.ts";
import { linkDevice } from "./device-link.ts";
import type { PersistentVolumePlugin, VolumeUse } from "./plugin.ts";
import type { UnpublishDeps } from "./unmounter.ts";
import { podDirectory } from "../../host/layout.ts";

const directoryMode = 0o750;

/** Maps a block device into a pod: a link in the pod's directory, and a bind mount named after the pod's UID in the volume's
 *  directory on the node, held open by a loop device. The link is created first and removed last: a later process finds the rest
 *  by it.
 *  @param device with links resolved. @param directory the volume's global map path, in the kubelet's terms. @returns the link.
 *  @throws VolumeStepError in the kubelet's words.
 *  @see https://kubernetes.io/docs/concepts/storage/persistent-volumes/#raw-block-volume-support */
export async function mapDevice(
  deps: SetUpDeps,
  kind: Pick<PersistentVolumePlugin, "pluginName">,
  use: VolumeUse,
  { device, directory }: { readonly device: string; readonly directory: string },
  signal: AbortSignal,
): Promise<string> {
  const { name } = use.volume.metadata;
  const { uid } = use.pod.metadata;
  const about = `globalMapPath:${directory}, podUID: ${uid}`;
  const failed = (what: string) => (error: unknown) => {
    const why = new CodedError(codeOf(error), `${what}: ${messageOf(error)}`, { cause: error });
    throw new VolumeStepError("MapVolume.MapBlockVolume failed", name, why);
  };
  await checkNoLink({ host: deps.host }, directory, signal).catch(failed("blkUtil.MapDevice failed"));
  const link = await linkDevice(deps, kind, use, device, signal).catch(failed("blkUtil.MapDevice failed"));
  const bound = await bindDevice(deps, device, `${directory}/${uid}`, signal).catch(
    failed(`blkUtil.MapDevice failed. devicePath: ${device}, ${about}, bindMount: true`),
  );
  const attached = await attachLoopDevice(deps.host, `${directory}/${uid}`, signal).catch(
    failed(`blkUtil.AttachFileDevice failed. ${about}`),
  );
  if (bound || attached)
    for (const where of [
      `globalMapPath ${JSON.stringify(directory)}`,
      `volumeMapPath ${JSON.stringify(link.slice(0, link.lastIndexOf("/")))}`,
    ])
      deps.events.event(
        podReference(use.pod),
        "Normal",
        "SuccessfulMountVolume",
        `MapVolume.MapPodDevice succeeded for volume ${JSON.stringify(name)} ${where}`,
      );
  return link;
}

/** @returns true if it was not bound before. @throws failed_precondition in the kubelet's words. */
async function bindDevice({ host }: SetUpDeps, device: string, path: string, signal: AbortSignal): Promise<boolean> {
  const found = await ignoreNotFound(host.fs.lstat(path, signal));
  if (found?.kind === "blockDevice") return false;
  if (found && found.kind !== "file")
    throw new CodedError("failed_precondition", `${path} is not a regular file created by the node`);
  const directory = path.slice(0, path.lastIndexOf("/"));
  await host.fs.apply(
    [
      { kind: "mkdir", path: directory, mode: directoryMode, parents: true },
      ...(found ? [] : [{ kind: "create" as const, path }]),
    ],
    signal,
  );
  await mount(host, { options: [["-o", "bind"]], operands: [device, path] }, signal).catch((error: unknown) => {
    const why = `failed to bind mount devicePath: ${device} to linkPath ${path}: ${messageOf(error)}`;
    throw new CodedError(codeOf(error), why, { cause: error });
  });
  return true;
}

/** Undoes the mapping of a device for one pod, except the link. Safe to repeat. @throws an error in the kubelet's words. */
export async function unmapDevice(
  { host }: Pick<UnpublishDeps, "host">,
  directory: string,
  uid: string,
): Promise<void> {
  await releaseDevicePath(host, `${directory}/${uid}`).catch((error: unknown) => {
    const why = `blkUtil.DetachFileDevice failed. globalUnmapPath:${directory}, podUID: ${uid}: ${messageOf(error)}`;
    throw new CodedError(codeOf(error), why, { cause: error });
  });
}

/** Undoes mappings for pods that no longer exist.
 *  @param records names of files in the directory that are not mappings. @returns false if a pod that exists has the device mapped. */
export async function unmapOrphans(
  { host, rootDir }: Pick<UnpublishDeps, "host" | "rootDir">,
  directory: string,
  signal: AbortSignal,
  records: readonly string[] = [],
): Promise<boolean> {
  const found = ((await ignoreNotFound(host.fs.list(directory, signal))) ?? []).map(({ name }) => name);
  const uids = found.filter((name) => !records.includes(name));
  const pods = uids.map((uid) => ignoreNotFound(host.fs.lstat(podDirectory(rootDir, uid), signal)));
  if ((await Promise.all(pods)).some((pod) => pod !== undefined)) return false;
  for (const uid of uids) await unmapDevice({ host }, directory, uid);
  return true;
}

/** Names of volumes that are mapped for a pod.
 *  @param all parent of the volumes' directories. @param below path from there to the directory with the bind mounts. */
export async function volumesMappedFor(
  { host }: Pick<UnpublishDeps, "host">,
  { all, below = "" }: { readonly all: string; readonly below?: string },
  uid: string,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const volumes = ((await ignoreNotFound(host.fs.list(all, signal))) ?? []).filter(({ kind }) => kind === "directory");
  const found = volumes.map(async ({ name }) =>
    (await ignoreNotFound(host.fs.lstat(`${all}/${name}${below}/${uid}`, signal))) === undefined ? [] : [name],
  );
  return (await Promise.all(found)).flat();
}
