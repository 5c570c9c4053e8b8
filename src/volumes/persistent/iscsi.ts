import { isMountPoint, mountedContext } from "../../host/mounts.ts";
import { ignoreNotFound } from "../../lib/errors.ts";
import type { PersistentVolume } from "../../objects.ts";
import { VolumeStepError } from "../failure.ts";
import { checkNoLink, podSubdirectory, volumeDirectory } from "../paths.ts";
import type { SetUpDeps } from "../plugins/plugin.ts";
import { applyFSGroup } from "./apply-fs-group.ts";
import { bindMount } from "./bind-mount.ts";
import { DeviceMountError, mountDevice, reportMismatch } from "./block-device.ts";
import { attachIscsiDisk } from "./iscsi-attach.ts";
import { chapSecretsOf } from "./iscsi-chap.ts";
import {
  iscsiAttachedName,
  iscsiDirectories,
  iscsiDiskId,
  iscsiDiskOf,
  iscsiPluginName,
  iscsiSourceOf,
} from "./iscsi-disk.ts";
import { iscsiRecord, iscsiRecordOf } from "./iscsi-record.ts";
import { iscsiUnmounter } from "./iscsi-unmounter.ts";
import { waitUntilAttachedInNode } from "./node-attachment.ts";
import { type PersistentVolumePlugin, type VolumeUse, labelOption, unstageOtherLabel } from "./plugin.ts";

const privateMode = 0o750;

/** A LUN of an iSCSI target, which the target machine's iscsiadm logs in to: its file system is mounted once for the node and
 *  bind-mounted for each pod, or its device is given to pods.
 *  @see https://kubernetes.io/docs/concepts/storage/volumes/#iscsi */
export const persistentIscsi: PersistentVolumePlugin = {
  pluginName: iscsiPluginName,
  supportsMountOptions: true,
  selinux: {
    isSupported: async () => true,
    mountedLabel: ({ host, rootDir, mounts }, use, signal) =>
      mountedContext(host, publishedPath(rootDir, use), signal, mounts),
  },
  id: idOf,
  unmounter: iscsiUnmounter,
  async stage(deps, use, signal) {
    const { mounted } = iscsiDirectories(deps.rootDir, idOf(use.volume));
    await waitUntilAttached(deps, use, signal);
    await checkNoLink({ host: deps.host }, mounted, signal);
    const label = await mountedContext(deps.host, mounted, signal, deps.mounts);
    const isUnstaged = await unstageOtherLabel(deps, persistentIscsi, use, label, signal);
    if (label !== undefined && !isUnstaged) return mounted;
    const device = await attach(deps, use, { directory: mounted, operation: "MountVolume" }, signal);
    const { fsType = "" } = iscsiSourceOf(use.volume);
    const access = use.readOnly ? [...new Set([...use.options, "ro"])].sort() : use.options;
    const options = [...access, ...labelOption(use.selinuxLabel)];
    await mountDevice(deps, { device, at: mounted, fsType, options }, signal).catch((error: unknown) => {
      if (error instanceof DeviceMountError && error.isMismatch) reportMismatch(deps, use.volume, error);
      throw new VolumeStepError("MountVolume.MountDevice failed", use.volume.metadata.name, error);
    });
    return mounted;
  },
  async publish(deps, use, staged, signal) {
    const path = publishedPath(deps.rootDir, use);
    await checkNoLink(deps, path, signal);
    const unlabelled = use.selinuxLabel ? { unlabelled: true as const } : {};
    const ready = { hostPath: path, space: "fileSystem", ...unlabelled } as const;
    if (await ignoreNotFound(isMountPoint(deps.host, path, signal, deps.mounts))) return ready;
    await deps.host.fs.apply(
      podSubdirectory(deps.rootDir, use.pod.metadata.uid, "volumes", { path, mode: privateMode }),
      signal,
    );
    const options = use.readOnly ? ["ro", ...use.options] : use.options;
    await bindMount(deps.host, { from: staged, to: path, options }, signal, async () => {
      if (!use.readOnly) await applyFSGroup(deps, use.pod, path, signal);
    });
    return ready;
  },
  async setUpDevice(deps, use, signal) {
    const { mapped } = iscsiDirectories(deps.rootDir, idOf(use.volume));
    await waitUntilAttached(deps, use, signal);
    await checkNoLink({ host: deps.host }, mapped, signal);
    const device = await attach(deps, use, { directory: mapped, operation: "MapVolume" }, signal);
    const real = await deps.host.fs.realpath(device, signal).catch((error: unknown) => {
      throw new VolumeStepError("MapVolume.EvalHostSymlinks failed", use.volume.metadata.name, error);
    });
    return { device: real, directory: mapped, space: "device" };
  },
};

function publishedPath(rootDir: string, { pod, volume }: VolumeUse): string {
  return volumeDirectory(rootDir, pod.metadata.uid, "iscsi", volume.metadata.name);
}

function idOf(volume: PersistentVolume): string {
  return iscsiDiskId(iscsiDiskOf(volume));
}

/** Waits until the Node lists the volume as attached. The attach/detach controller attaches a single-node volume to one node at a
 *  time. */
async function waitUntilAttached(deps: SetUpDeps, { pod, volume }: VolumeUse, signal: AbortSignal): Promise<void> {
  const awaited = { id: idOf(volume), uid: pod.metadata.uid, name: iscsiAttachedName(volume) };
  deps.onAwaitingAttach(async () => false);
  await waitUntilAttachedInNode(deps, awaited, signal);
  deps.onAwaitingAttach(undefined);
}

/** Attaches the disk. Its record is written to the directory first, so that a later process can undo the login.
 *  @returns the path of the device. @throws VolumeStepError in the kubelet's words. */
async function attach(
  deps: SetUpDeps,
  use: VolumeUse,
  { directory, operation }: { readonly directory: string; readonly operation: "MountVolume" | "MapVolume" },
  signal: AbortSignal,
): Promise<string> {
  const { name } = use.volume.metadata;
  const disk = iscsiDiskOf(use.volume);
  const initialization = operation === "MapVolume" ? "NewBlockVolumeMapper" : "NewMounter";
  const chap = await chapSecretsOf(deps, use, signal).catch((error: unknown) => {
    throw new VolumeStepError(`${operation}.${initialization} initialization failed`, name, error);
  });
  const record = () =>
    deps.host.fs.apply(
      [
        { kind: "mkdir", path: directory, mode: privateMode, parents: true },
        { kind: "write", path: `${directory}/${iscsiRecord}`, data: iscsiRecordOf(disk) },
      ],
      signal,
    );
  return attachIscsiDisk(deps, disk, { chap, record }, signal).catch((error: unknown) => {
    throw new VolumeStepError(`${operation}.WaitForAttach failed`, name, error);
  });
}
