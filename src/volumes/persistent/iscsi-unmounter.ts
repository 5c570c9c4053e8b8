import { deleteScsiDisk, iscsiDiskName, iscsiSessionsOf, multipathDeviceOf } from "../../host/iscsi-sessions.ts";
import { iscsiDirectoriesOf, podDirectory } from "../../host/layout.ts";
import { CodedError, codeOf, ignoreNotFound, messageOf } from "../../lib/errors.ts";
import { timed } from "../../lib/timed.ts";
import { command } from "../../seams/command.ts";
import { iscsiTargetKey } from "./iscsi-attach.ts";
import { type IscsiDisk, iscsiAttachedNames, iscsiDirectories, iscsiDiskOfId, iscsiPluginName } from "./iscsi-disk.ts";
import { iscsiRecord, readIscsiDisk } from "./iscsi-record.ts";
import { createIscsiadm } from "./iscsiadm.ts";
import { unmountStaged } from "./local-staging.ts";
import { unmapDevice, unmapOrphans, volumesMappedFor } from "./map-device.ts";
import type { PersistentVolumeUnmounter, RetainedDirectory, UnmounterDeps, UnpublishDeps } from "./unmounter.ts";

/** Unstages iSCSI disks: unmounts the file system, removes the disks from the kernel, and logs out of the target unless the node
 *  has another disk of it. Disks are found by their directories, so this also works after a crash. */
export const iscsiUnmounter: PersistentVolumeUnmounter = {
  pluginName: iscsiPluginName,
  attachedNames: iscsiAttachedNames,
  async unpublish(deps, uid, signal) {
    const links = `${podDirectory(deps.rootDir, uid)}/volumeDevices/kubernetes.io~iscsi`;
    try {
      const [mapped, hasLinks] = await Promise.all([mappedFor(deps, uid, signal), exists(deps, links, signal)]);
      for (const id of mapped) await unmapDevice(deps, iscsiDirectories(deps.rootDir, id).mapped, uid);
      // The links are removed last, so that a later process still finds the mappings by them.
      if (hasLinks) await deps.host.fs.apply([{ kind: "remove", path: links, recursive: true }], signal);
      return [];
    } catch (reason) {
      return [{ path: links, reason } satisfies RetainedDirectory];
    }
  },
  async listStaged(deps, _known, signal) {
    const { mounts, devices } = iscsiDirectoriesOf(deps.rootDir);
    const found = await Promise.all([idsIn(deps, mounts, signal), idsIn(deps, devices, signal)]);
    return [...new Set(found.flat())];
  },
  async unstage(deps, id, signal) {
    const { mounted, mapped } = iscsiDirectories(deps.rootDir, id);
    if (await exists(deps, mapped, signal)) {
      if (!(await unmapOrphans(deps, mapped, signal, [iscsiRecord]))) return false;
      await timed(
        deps.clock,
        () => detachAndRemove(deps, id, mapped, signal),
        (ms, failed) => deps.measures.deviceUnmapped(iscsiPluginName, ms, failed),
      );
    }
    if (!(await exists(deps, mounted, signal))) return true;
    if (!(await unmountStaged(deps, mounted, signal))) return false;
    await detachAndRemove(deps, id, mounted, signal);
    return true;
  },
};

async function exists({ host }: UnpublishDeps, path: string, signal: AbortSignal): Promise<boolean> {
  return (await ignoreNotFound(host.fs.lstat(path, signal)))?.kind === "directory";
}

/** Identities of disks with a directory below `all`. */
async function idsIn({ host }: UnpublishDeps, all: string, signal: AbortSignal): Promise<readonly string[]> {
  const directories = async (path: string) =>
    ((await ignoreNotFound(host.fs.list(path, signal))) ?? []).flatMap(({ name, kind }) =>
      kind === "directory" ? [name] : [],
    );
  const interfaces = (await directories(all)).filter((name) => name.startsWith("iface-"));
  const found = interfaces.map(async (iface) =>
    (await directories(`${all}/${iface}`)).map((name) => `${iface}/${name}`),
  );
  return (await Promise.all(found)).flat().filter((id) => iscsiDiskOfId(id) !== undefined);
}

/** Identities of disks that are mapped into a pod. */
async function mappedFor(deps: UnpublishDeps, uid: string, signal: AbortSignal): Promise<readonly string[]> {
  const { devices } = iscsiDirectoriesOf(deps.rootDir);
  const interfaces = (await ignoreNotFound(deps.host.fs.list(devices, signal))) ?? [];
  const found = interfaces.map(async ({ name }) =>
    (await volumesMappedFor(deps, { all: `${devices}/${name}` }, uid, signal)).map((one) => `${name}/${one}`),
  );
  return (await Promise.all(found)).flat();
}

/** Detaches a disk, then removes its directory. If detaching fails, the directory stays, so that the disk is found again. */
async function detachAndRemove(deps: UnmounterDeps, id: string, path: string, signal: AbortSignal): Promise<void> {
  const disk = await readIscsiDisk(deps, id, path, signal);
  if (disk)
    await deps
      .serialize(iscsiTargetKey(disk.iqn), () => detach(deps, disk, path, signal))
      .catch((error: unknown) => {
        const why = `iscsi: failed to detach disk: ${path}\nError: ${messageOf(error)}`;
        throw new CodedError(codeOf(error), why, { cause: error });
      });
  // Not recursive: if something is mounted there, or has been put there, nothing is deleted.
  const changes = [`${path}/${iscsiRecord}`, path].map((one) => ({ kind: "remove", path: one }) as const);
  await ignoreNotFound(deps.host.fs.apply(changes, signal));
}

async function detach(deps: UnmounterDeps, disk: IscsiDisk, path: string, signal: AbortSignal): Promise<void> {
  const others = await otherDisks(deps, path, signal);
  const ofTarget = others.filter(({ iqn }) => iqn === disk.iqn);
  if (!ofTarget.some(({ lun }) => lun === disk.lun)) await deleteDisks(deps, disk, signal);
  const sameSessions = ofTarget.filter(({ iface }) => iface === disk.iface);
  const needed = new Set(sameSessions.map(({ portals: [portal] }) => portal));
  if (needed.has(disk.portals[0])) return;
  const iscsiadm = createIscsiadm(deps.host, signal);
  for (const portal of disk.portals)
    if (!needed.has(portal)) await iscsiadm.logOut({ portal, iqn: disk.iqn, iface: disk.iface });
  if (disk.initiatorName !== "" && disk.iface === `${disk.portals[0]}:${disk.name}` && sameSessions.length === 0)
    await iscsiadm.deleteInterface(disk.iface);
}

/** Disks of the node, except the one in this directory. */
async function otherDisks(deps: UnmounterDeps, path: string, signal: AbortSignal): Promise<readonly IscsiDisk[]> {
  const { mounts, devices } = iscsiDirectoriesOf(deps.rootDir);
  const found = [mounts, devices].map(async (all) =>
    (await idsIn(deps, all, signal)).filter((id) => `${all}/${id}` !== path),
  );
  return (await Promise.all(found)).flat().flatMap((id) => iscsiDiskOfId(id) ?? []);
}

/** Removes the kernel's disks of a LUN, and the multipath devices above them. Failures are only logged, because logging out also
 *  removes the disks. */
async function deleteDisks({ host, log }: UnmounterDeps, { iqn, lun }: IscsiDisk, signal: AbortSignal): Promise<void> {
  const sessions = await iscsiSessionsOf(host, iqn, signal);
  const found = await Promise.all(sessions.map((session) => iscsiDiskName(host, session, lun, signal)));
  const disks = found.filter((name) => name !== undefined);
  const above = await Promise.all(disks.map((name) => multipathDeviceOf(host, `/dev/${name}`, signal)));
  for (const device of new Set(above.filter((one) => one !== undefined))) {
    const ran = await ignoreNotFound(host.run(command("multipath", [["-f", device]]), { signal }));
    if (ran?.code !== 0)
      log.warn({ device, output: ran?.stderr.trim() }, "cannot flush multipath device of iSCSI disk");
  }
  for (const name of disks)
    await deleteScsiDisk(host, name, signal).catch((err: unknown) =>
      log.warn({ err, device: name }, "cannot remove iSCSI disk from the kernel"),
    );
}
