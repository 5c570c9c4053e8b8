import { CodedError } from "../../lib/errors.ts";
import type { PersistentVolume } from "../../objects.ts";
import { iscsiDirectoriesOf } from "../../host/layout.ts";

export const iscsiPluginName = "kubernetes.io/iscsi";

/** Interface of iscsiadm that a volume uses unless it names another one. */
const defaultInterface = "default";

/** A LUN of an iSCSI target, and how the node reaches it. */
export interface IscsiDisk {
  /** Name of the PersistentVolume, or of the pod's volume. */
  readonly name: string;
  /** Portals with their ports, the volume's own one first. */
  readonly portals: readonly [string, ...string[]];
  readonly iqn: string;
  readonly lun: number;
  /** The interface that the sessions use: the volume's own copy if it has an initiator name. */
  readonly iface: string;
  /** The configured interface that the copy is made from. */
  readonly initiatorInterface: string;
  /** Initiator name (IQN); empty to use the one configured on the target machine. */
  readonly initiatorName: string;
}

type Source = NonNullable<NonNullable<PersistentVolume["spec"]>["iscsi"]>;

/** Portals, IQNs and interfaces become arguments of commands and parts of paths. The API server does not validate them strictly
 *  enough. */
const portalPattern = /^(\[[0-9A-Fa-f:.%\w]+\](:\d{1,5})?|[A-Za-z0-9][\w.-]*(:\d{1,5})?|[0-9A-Fa-f:.]+)$/;
const namePattern = /^(iqn|eui|naa)\.[\w.:-]+$/;
const interfacePattern = /^\w[\w.:[\]%-]*$/;
const maxLun = 255;
/** Maximum length of an iSCSI name. */
const maxNameLength = 223;

/** The iSCSI source of a volume. @throws failed_precondition if it has none. */
export function iscsiSourceOf({ metadata, spec }: PersistentVolume): Source {
  if (spec?.iscsi) return spec.iscsi;
  throw new CodedError("failed_precondition", `volume ${metadata.name} does not reference an ISCSI volume type`);
}

/** The disk of a volume. Pure. @throws failed_precondition, naming the field, for an invalid address or name. */
export function iscsiDiskOf(volume: PersistentVolume): IscsiDisk {
  const { targetPortal, portals = [], iqn, lun, iscsiInterface, initiatorName = "" } = iscsiSourceOf(volume);
  const { name } = volume.metadata;
  const initiatorInterface = iscsiInterface ?? defaultInterface;
  const own = withPort(check("targetPortal", targetPortal, portalPattern, "an address with an optional port"));
  const others = portals.map((portal) =>
    withPort(check("portals", portal, portalPattern, "an address with an optional port")),
  );
  if (!Number.isInteger(lun) || lun < 0 || lun > maxLun)
    throw new CodedError("failed_precondition", `iscsi.lun ${lun} is not a number from 0 to ${maxLun}`);
  if (initiatorName !== "") check("initiatorName", initiatorName, namePattern, "a name of an iSCSI node");
  return {
    name,
    portals: [own, ...others.filter((portal, index) => portal !== own && others.indexOf(portal) === index)],
    iqn: check("iqn", iqn, namePattern, "a name of an iSCSI node"),
    lun,
    iface: initiatorName === "" ? checkInterface(initiatorInterface) : `${own}:${name}`,
    initiatorInterface: checkInterface(initiatorInterface),
    initiatorName,
  };
}

function check(field: string, value: string, pattern: RegExp, what: string): string {
  if (value.length <= maxNameLength && pattern.test(value) && !value.includes("..")) return value;
  throw new CodedError("failed_precondition", `iscsi.${field} ${JSON.stringify(value)} is not ${what}`);
}

function checkInterface(name: string): string {
  return check("iscsiInterface", name, interfacePattern, "a name of an interface");
}

/** Adds the default iSCSI port to a portal without a port. (kubelet, portalMounter) */
function withPort(portal: string): string {
  return portal.includes(":") ? portal : `${portal}:3260`;
}

/** Identity of a disk on the node, which is also the end of its directories' paths:
 *  `iface-INTERFACE/PORTAL-IQN-lun-LUN`. Pure. */
export function iscsiDiskId({ iface, portals: [portal], iqn, lun }: IscsiDisk): string {
  return `iface-${iface}/${portal}-${iqn}-lun-${lun}`;
}

/** The disk with this identity, without its further portals and its initiator name. Pure. @returns undefined if the text is not the
 *  identity of a disk. */
export function iscsiDiskOfId(id: string): IscsiDisk | undefined {
  const parts = /^iface-([^/]+)\/([^/]+?)-((?:iqn|eui|naa)\.[^/]*)-lun-(\d{1,5})$/.exec(id);
  const [, iface = "", portal = "", iqn = "", lun = ""] = parts ?? [];
  if (!interfacePattern.test(iface) || !portalPattern.test(portal) || !namePattern.test(iqn)) return undefined;
  return {
    name: "",
    portals: [portal],
    iqn,
    lun: Number(lun),
    iface,
    initiatorInterface: iface,
    initiatorName: "",
  };
}

/** A disk's directories on the node: the global mount of its file system, and the global map path of its device. */
export function iscsiDirectories(rootDir: string, id: string): { readonly mounted: string; readonly mapped: string } {
  const { mounts, devices } = iscsiDirectoriesOf(rootDir);
  return { mounted: `${mounts}/${id}`, mapped: `${devices}/${id}` };
}

/** Name of an attached volume in the Node's status, with the portal as written in the volume's spec. (kubelet, GetVolumeName) */
export function iscsiAttachedName(volume: PersistentVolume): string {
  const { targetPortal, iqn, lun } = iscsiSourceOf(volume);
  return `${iscsiPluginName}/${targetPortal}:${iqn}:${lun}`;
}

/** Names that a disk found on the node may have in the Node's status. */
export function iscsiAttachedNames(id: string): readonly string[] {
  const disk = iscsiDiskOfId(id);
  if (!disk) return [];
  const [portal] = disk.portals;
  const written = [portal, ...(portal.endsWith(":3260") ? [portal.slice(0, -":3260".length)] : [])];
  return written.map((one) => `${iscsiPluginName}/${one}:${disk.iqn}:${disk.lun}`);
}
