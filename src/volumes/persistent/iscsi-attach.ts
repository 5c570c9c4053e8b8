import {
  type IscsiSession,
  iscsiDiskName,
  iscsiSessionsOf,
  multipathDeviceOf,
  scanIscsiLun,
} from "../../host/iscsi-sessions.ts";
import { CodedError, ignoreNotFound, messageOf, throwIfAborted } from "../../lib/errors.ts";
import type { SetUpDeps } from "../plugins/plugin.ts";
import type { ChapSecrets } from "./iscsi-chap.ts";
import type { IscsiDisk } from "./iscsi-disk.ts";
import { type Iscsiadm, createIscsiadm } from "./iscsiadm.ts";

/** The kubelet's limits: the number of paths that suffices, the number of rounds in which missing paths are tried nevertheless, and
 *  the maximum number of rounds. */
const enoughPaths = 2;
const minRounds = 2;
const maxRounds = 5;
/** Number of checks for a disk, and for a multipath device, one per second. */
const diskLooks = 30;
const multipathLooks = 10;
const lookIntervalMs = 1_000;
/** Time limit for further portals once there is one path, milliseconds. It is shorter than the timeout of an attempt to set up the
 *  volume. */
const furtherPortalsMs = 60_000;

const byPath = "/dev/disk/by-path";

/** Dependencies for attaching a disk. */
type AttachDeps = Pick<SetUpDeps, "host" | "clock" | "log" | "volumeStates">;

/** Key of the lock of a target: without it, two disks of one target could both log in, or one could log out while the other logs
 *  in. */
export function iscsiTargetKey(iqn: string): string {
  return `iSCSI target ${iqn}`;
}

/** Logs in to a disk's target, except through portals that already have a session, and makes the kernel scan for the disk's LUN.
 *  @param record records the disk before the first login, so that the login can be undone after a crash.
 *  @returns the multipath device, or the disk. @throws an error in the kubelet's words. */
export async function attachIscsiDisk(
  deps: AttachDeps,
  disk: IscsiDisk,
  { chap, record }: { readonly chap: ChapSecrets; readonly record: () => Promise<void> },
  signal: AbortSignal,
): Promise<string> {
  const iscsiadm = createIscsiadm(deps.host, signal);
  const transport = (await iscsiadm.showInterface(disk.initiatorInterface)).get("iface.transport_name");
  return deps.volumeStates.serialize(iscsiTargetKey(disk.iqn), async () => {
    await record();
    if (disk.initiatorName !== "")
      await iscsiadm.cloneInterface(disk.initiatorInterface, disk.iface, disk.initiatorName);
    const paths = await attachPaths(deps, { disk, chap, iscsiadm, transport }, signal);
    return deviceOf(deps, disk, paths, signal);
  });
}

interface Attachment {
  readonly disk: IscsiDisk;
  readonly chap: ChapSecrets;
  readonly iscsiadm: Iscsiadm;
  /** Transport of the interface; empty means `tcp`, undefined that the interface has no such setting. */
  readonly transport: string | undefined;
}

/** Attaches the disk through each portal that responds within the kubelet's number of rounds. @returns at least one path. */
async function attachPaths(deps: AttachDeps, attachment: Attachment, signal: AbortSignal): Promise<readonly string[]> {
  const { disk, iscsiadm } = attachment;
  const paths = new Map<string, string>();
  let lastError: unknown;
  const begun = deps.clock.monotonic();
  const mayTry = () => paths.size === 0 || deps.clock.monotonic() - begun < furtherPortalsMs;
  const portals = await loggedInFirst(deps, disk, signal);
  for (let round = 1; round <= maxRounds && mayTry(); round += 1) {
    for (const portal of portals.filter((one) => !paths.has(one))) {
      if (!mayTry()) break;
      try {
        paths.set(portal, await attachPath(deps, attachment, portal, signal));
      } catch (error) {
        throwIfAborted(signal);
        if (!(error instanceof CodedError) || error.code !== "failed_precondition") throw error;
        lastError = error;
      }
    }
    if (paths.size === 0) {
      // Delete only an interface that was created for this volume.
      if (disk.initiatorName !== "") await iscsiadm.deleteInterface(disk.iface).catch(() => undefined);
      const why = `failed to get any path for iscsi disk, last err seen:\n${messageOf(lastError)}`;
      throw new CodedError("failed_precondition", why, { cause: lastError });
    }
    if (paths.size === disk.portals.length || (paths.size >= enoughPaths && round >= minRounds)) break;
  }
  if (lastError !== undefined && paths.size < disk.portals.length)
    deps.log.warn({ err: lastError, iqn: disk.iqn }, "cannot reach iSCSI disk through all of its portals");
  return [...paths.values()];
}

/** A disk's portals, those with a session first: after an interrupted attempt, the next one then takes less time. */
async function loggedInFirst(
  { host }: AttachDeps,
  { portals, iqn, iface }: IscsiDisk,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const sessions = (await iscsiSessionsOf(host, iqn, signal)).filter((one) => one.iface === iface);
  const has = (portal: string) => sessions.some((one) => one.portals.includes(portal));
  return [...portals.filter(has), ...portals.filter((portal) => !has(portal))];
}

/** Attaches the disk through one portal. @returns the path of the disk. @throws failed_precondition in the kubelet's words. */
async function attachPath(
  deps: AttachDeps,
  attachment: Attachment,
  portal: string,
  signal: AbortSignal,
): Promise<string> {
  const { disk, transport } = attachment;
  const existing = await sessionAt(deps, disk, portal, signal);
  if (!existing) await logIn(deps, attachment, portal);
  const session = existing ?? (await sessionAt(deps, disk, portal, signal));
  if (!session)
    throw new CodedError("failed_precondition", `no session with portal ${portal} after logging in to ${disk.iqn}`);
  await scanIscsiLun(deps.host, session, disk.lun, signal);
  if (transport === undefined)
    throw new CodedError("failed_precondition", `could not parse iface file for ${disk.iface}`);
  const name = `ip-${portal.replace(/[[\]]/g, "")}-iscsi-${disk.iqn}-lun-${disk.lun}`;
  const path = await waitForDisk(deps, name, transport === "" || transport === "tcp", signal);
  // Sessions of two interfaces with one portal share this name: make sure that the disk belongs to this session.
  const own = await iscsiDiskName(deps.host, session, disk.lun, signal);
  if (own === undefined || (await ignoreNotFound(deps.host.fs.realpath(path, signal))) === `/dev/${own}`) return path;
  return `/dev/${own}`;
}

async function sessionAt(
  { host }: AttachDeps,
  { iqn, iface }: IscsiDisk,
  portal: string,
  signal: AbortSignal,
): Promise<IscsiSession | undefined> {
  const all = await iscsiSessionsOf(host, iqn, signal);
  return all.find((one) => one.iface === iface && one.portals.includes(portal));
}

async function logIn({ log }: AttachDeps, { disk, chap, iscsiadm }: Attachment, portal: string): Promise<void> {
  const { iqn, iface } = disk;
  const node = { portal, iqn, iface };
  await iscsiadm.discover(portal, iface, chap.discovery);
  const warning = await iscsiadm.configure(node, chap.session);
  if (warning !== undefined)
    log.warn({ iqn, portal, output: warning }, "cannot turn off automatic LUN scans of iSCSI session");
  await iscsiadm.login(node);
  const startup = await iscsiadm.setManualStartup(node);
  if (startup !== undefined) log.warn({ iqn, portal, output: startup }, "cannot set iSCSI session to manual startup");
}

/** Waits until udev has named a disk. @param isTcp if false, the name begins with a PCI device.
 *  @throws failed_precondition in the kubelet's words. */
async function waitForDisk(
  { host, clock }: AttachDeps,
  name: string,
  isTcp: boolean,
  signal: AbortSignal,
): Promise<string> {
  const find = async () => {
    if (isTcp) return (await ignoreNotFound(host.fs.stat(`${byPath}/${name}`, signal))) && name;
    const all = (await ignoreNotFound(host.fs.list(byPath, signal))) ?? [];
    return all.map((one) => one.name).find((one) => one.startsWith("pci-") && one.endsWith(`-${name}`));
  };
  for (let look = 1; look <= diskLooks; look += 1) {
    const found = await find();
    if (found !== undefined) return `${byPath}/${found}`;
    if (look < diskLooks) await clock.sleep(lookIntervalMs, signal);
  }
  const path = `${byPath}/${isTcp ? "" : "pci-*-"}${name}`;
  throw new CodedError("failed_precondition", `Timed out waiting for device at path ${path} after ${diskLooks}s`);
}

/** Returns the multipath device on top of the paths, waiting for it if there are several portals; falls back to the first path. */
async function deviceOf(
  { host, clock }: AttachDeps,
  { portals }: IscsiDisk,
  paths: readonly string[],
  signal: AbortSignal,
): Promise<string> {
  const looks = portals.length > 1 ? multipathLooks : 1;
  for (let look = 1; look <= looks; look += 1) {
    for (const path of paths) {
      const device = await multipathDeviceOf(host, path, signal);
      if (device !== undefined) return device;
    }
    if (look < looks) await clock.sleep(lookIntervalMs, signal);
  }
  return paths[0] ?? "";
}
