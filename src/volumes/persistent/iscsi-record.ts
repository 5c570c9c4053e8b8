import { parseBoundedJson } from "../../lib/bounded-text.ts";
import { ignoreNotFound } from "../../lib/errors.ts";
import type { Host } from "../../seams/host.ts";
import { type IscsiDisk, iscsiDiskOfId } from "./iscsi-disk.ts";

/** Name of the file in a disk's directory that describes the disk; hidden while the disk's file system is mounted over the
 *  directory. A kubelet that takes over the node reads it. */
export const iscsiRecord = "iscsi.json";

const maxRecordBytes = 64 * 1024;
const maxPortals = 64;

/** The record of a disk, in the kubelet's format. */
export function iscsiRecordOf(disk: IscsiDisk): string {
  const { name, portals, iqn, lun, initiatorInterface, iface, initiatorName } = disk;
  return `${JSON.stringify({
    VolName: name,
    Portals: portals,
    Iqn: iqn,
    Lun: String(lun),
    InitIface: initiatorInterface,
    Iface: iface,
    InitiatorName: initiatorName,
    MetricsProvider: null,
  })}\n`;
}

/** Reads the record of a disk in its directory, once nothing is mounted there. It supplies only what the directory's name does not
 *  contain: the volume's name, further portals, and the initiator name.
 *  @returns undefined if the text is not the identity of a disk. */
export async function readIscsiDisk(
  { host }: { readonly host: Host },
  id: string,
  directory: string,
  signal: AbortSignal,
): Promise<IscsiDisk | undefined> {
  const disk = iscsiDiskOfId(id);
  if (!disk) return undefined;
  const path = `${directory}/${iscsiRecord}`;
  const text = await ignoreNotFound(host.fs.readFile(path, { maxBytes: maxRecordBytes, signal }));
  return text === undefined ? disk : withIscsiRecord(disk, text, host);
}

/** Adds the volume's name, further portals and the initiator name from a record to a disk. */
export function withIscsiRecord(disk: IscsiDisk, text: Buffer, { budget }: Pick<Host, "budget"> = {}): IscsiDisk {
  const [own] = disk.portals;
  const { VolName, Portals, InitiatorName } = fieldsOf(text, budget);
  const further = Array.isArray(Portals) ? Portals.slice(0, maxPortals) : [];
  const valid = further.filter(
    (one): one is string => typeof one === "string" && iscsiDiskOfId(`iface-x/${one}-${disk.iqn}-lun-0`) !== undefined,
  );
  return {
    ...disk,
    name: typeof VolName === "string" ? VolName : "",
    portals: [own, ...new Set(valid.filter((one) => one !== own))],
    initiatorName: typeof InitiatorName === "string" ? InitiatorName : "",
  };
}

/** Fields of a record; empty if it cannot be parsed, for example because a crash truncated it. */
function fieldsOf(text: Buffer, budget: Host["budget"]): Readonly<Record<string, unknown>> {
  try {
    const value = parseBoundedJson(text, budget);
    return typeof value === "object" && value !== null ? { ...value } : {};
  } catch (error) {
    if (error instanceof SyntaxError) return {};
    throw error;
  }
}
