import { isIPv6 } from "node:net";
import { posix } from "node:path";
import { CodedError, ignoreCode, ignoreNotFound } from "../lib/errors.ts";
import type { Host } from "../seams/host.ts";

// Reads iSCSI sessions and their disks from the kernel. Nothing is cached, so the results are also correct after a crash.

/** Maximum number of iSCSI hosts that are read: the kernel has one for each session. */
const maxHosts = 1024;
const maxFileBytes = 4096;
const hostClass = "/sys/class/iscsi_host";

/** A session of the target machine's kernel. */
export interface IscsiSession {
  /** Number of its SCSI host. */
  readonly hostNumber: number;
  readonly iqn: string;
  /** Name of iscsiadm's interface. */
  readonly iface: string;
  /** Portals of its connections, as configured and as redirected: `ADDRESS:PORT`, IPv6 in brackets. */
  readonly portals: readonly string[];
  /** Its directory in sysfs. */
  readonly directory: string;
}

/** Sessions with a target. A session that ends meanwhile is left out.
 *  @throws resource_exhausted for more than 1024 sessions. */
export async function iscsiSessionsOf(host: Host, iqn: string, signal?: AbortSignal): Promise<readonly IscsiSession[]> {
  const hosts = numbered(await names(host, hostClass, signal), /^host(\d{1,9})$/);
  if (hosts.length > maxHosts)
    throw new CodedError("resource_exhausted", `the target has more than ${maxHosts} iSCSI hosts`);
  const found = hosts.map(async ({ name, number }) => {
    const device = `${hostClass}/${name}/device`;
    const sessions = (await names(host, device, signal)).filter((one) => /^session\d{1,9}$/.test(one));
    return Promise.all(sessions.map((one) => readSession(host, `${device}/${one}`, number, signal)));
  });
  return (await Promise.all(found)).flat().flatMap((one) => (one?.iqn === iqn ? [one] : []));
}

async function readSession(
  host: Host,
  directory: string,
  hostNumber: number,
  signal: AbortSignal | undefined,
): Promise<IscsiSession | undefined> {
  const about = `${directory}/iscsi_session/${posix.basename(directory)}`;
  const [iqn, iface, inside] = await Promise.all([
    text(host, `${about}/targetname`, signal),
    text(host, `${about}/ifacename`, signal),
    names(host, directory, signal),
  ]);
  if (iqn === undefined) return undefined;
  const connections = inside.filter((name) => /^connection\d+:\d+$/.test(name)).slice(0, maxHosts);
  const portals = connections.map(async (name) => {
    const at = `${directory}/${name}/iscsi_connection/${name}`;
    const both = ["", "persistent_"].map(async (prefix) => {
      const [address, port] = await Promise.all([
        text(host, `${at}/${prefix}address`, signal),
        text(host, `${at}/${prefix}port`, signal),
      ]);
      if (address === undefined || port === undefined) return [];
      return [`${isIPv6(address) ? `[${address}]` : address}:${port}`];
    });
    return (await Promise.all(both)).flat();
  });
  return { hostNumber, iqn, iface: iface ?? "", portals: (await Promise.all(portals)).flat(), directory };
}

/** Name of the disk of a LUN in a session, such as `sda`; undefined if the kernel has none. */
export async function iscsiDiskName(
  host: Host,
  { directory, hostNumber }: IscsiSession,
  lun: number,
  signal?: AbortSignal,
): Promise<string | undefined> {
  const at = `${directory}/target${hostNumber}:0:0/${hostNumber}:0:0:${lun}/block`;
  return (await names(host, at, signal)).find((name) => /^[a-z0-9]+$/.test(name));
}

/** Makes the kernel scan for a single LUN of a session. A scan for all LUNs would add other disks, whose removal the kernel would
 *  not notice. */
export async function scanIscsiLun(
  host: Host,
  { hostNumber }: IscsiSession,
  lun: number,
  signal?: AbortSignal,
): Promise<void> {
  const path = `/sys/class/scsi_host/host${hostNumber}/scan`;
  await host.fs.apply([{ kind: "write", path, data: `0 0 ${lun}` }], signal);
}

/** Removes a disk from the kernel, even if something uses it. */
export async function deleteScsiDisk(host: Host, name: string, signal?: AbortSignal): Promise<void> {
  const path = `/sys/block/${name}/device/delete`;
  const exists = async () => (await ignoreNotFound(host.fs.lstat(path, signal))) !== undefined;
  if (!(await exists())) return;
  // The file disappears with the disk, so a host may fail when it then sets the file's mode.
  await host.fs.apply([{ kind: "write", path, data: "1" }], signal).catch(async (error: unknown) => {
    if (await exists()) throw error;
  });
}

/** The device mapper's device above a disk, such as `/dev/dm-0`; undefined if there is none. @param path of the disk; may be a
 *  link. */
export async function multipathDeviceOf(host: Host, path: string, signal?: AbortSignal): Promise<string | undefined> {
  const real = await ignoreNotFound(host.fs.realpath(path, signal));
  if (real === undefined) return undefined;
  if (/^\/dev\/dm-\d+$/.test(real)) return real;
  const disk = /^\/dev\/([^/]+)$/.exec(real)?.[1];
  if (disk === undefined) return undefined;
  const mapped = (await names(host, "/sys/block", signal)).filter((name) => /^dm-\d+$/.test(name));
  const found = mapped.map(async (name) => {
    const slave = await ignoreNotFound(host.fs.lstat(`/sys/block/${name}/slaves/${disk}`, signal));
    return slave === undefined ? [] : [`/dev/${name}`];
  });
  return (await Promise.all(found)).flat()[0];
}

async function names(host: Host, directory: string, signal: AbortSignal | undefined): Promise<readonly string[]> {
  return ((await ignoreNotFound(host.fs.list(directory, signal))) ?? []).map(({ name }) => name);
}

function numbered(all: readonly string[], pattern: RegExp) {
  return all.flatMap((name) => {
    const number = pattern.exec(name)?.[1];
    return number === undefined ? [] : [{ name, number: Number(number) }];
  });
}

/** The value in a sysfs file; undefined if the file or its device is gone. */
async function text(host: Host, path: string, signal: AbortSignal | undefined): Promise<string | undefined> {
  const reading = host.fs.readFile(path, { maxBytes: maxFileBytes, ...(signal && { signal }) });
  const bytes = await ignoreCode(reading, "not_found", "failed_precondition", "unknown");
  return bytes?.toString("utf8").trim();
}
