import { onAbort } from "../../../src/lib/runnables.ts";
import type { FileChange } from "../../../src/seams/host.ts";
import type { Program } from "../../fakes/host-programs.ts";
import { type Bench, volumeBench } from "./volume-bench.ts";

export const iqn = "iqn.2026-01.dev.graftlet:disk";
const empty = "<empty>";

/** What an initiator of Debian 12 says of its interface (open-iscsi 2.1.8). */
const showDefault = `# BEGIN RECORD 2.1.8
iface.iscsi_ifacename = default
iface.net_ifacename = ${empty}
iface.ipaddress = ${empty}
iface.prefix_len = 0
iface.hwaddress = ${empty}
iface.transport_name = tcp
iface.initiatorname = ${empty}
iface.state = ${empty}
iface.vlan_id = 0
iface.mtu = 0
iface.port = 0
# END RECORD
`;

interface Session {
  readonly portal: string;
  readonly iface: string;
  readonly host: number;
  /** Disks that the kernel knows, by their LUNs. */
  readonly disks: Map<number, string>;
}

/** How tests steer the initiator and what they see of it. */
export interface Initiator {
  readonly sessions: readonly Session[];
  /** Records of sessions: `PORTAL IFACE`, with their settings. */
  readonly nodes: ReadonlyMap<string, ReadonlyMap<string, string>>;
  readonly interfaces: ReadonlySet<string>;
  /** Command lines of iscsiadm so far. */
  readonly calls: readonly string[];
  /** The password that the target asks for; none by default. */
  password: string | undefined;
  /** Portals that do not answer. */
  readonly down: Set<string>;
  /** LUNs that the target has. */
  readonly luns: Set<number>;
  /** True if a multipath device appears above a second path. */
  multipath: boolean;
  /** Asked before each call of iscsiadm, with their number; a call that it returns true for never ends. */
  hangs: ((count: number) => boolean) | undefined;
}

const valueOf = (args: readonly string[], option: string) => {
  const at = args.indexOf(option);
  return at < 0 ? undefined : args[at + 1];
};

/** A bench whose machine has an initiator, and whose cluster has attached the volume of these names. */
export function iscsiBench(...attached: readonly string[]): Bench & { readonly initiator: Initiator } {
  const bench = volumeBench();
  bench.storage.status = {
    volumesInUse: [...attached],
    volumesAttached: attached.map((name) => ({ name, devicePath: "" })),
  };
  const initiator = startInitiator(bench);
  bench.host.program("blkid", () => 2);
  bench.host.program("mkfs.ext4", () => 0);
  // Binds show the file system that they are of.
  const devices = new Map<string, string>();
  bench.host.program("mount", (args) => {
    const [from = "", to = ""] = args.slice(-2);
    if (args[1] === "bind") bench.host.files.bind(from, to);
    else if (args[0] === "-t") devices.set(to, `8:${devices.size}`);
    if (args[0] === "-t" || args[0] === "--bind")
      bench.host.files.mount(to, "ext4", devices.get(args[0] === "-t" ? to : from));
    return 0;
  });
  return Object.assign(bench, { initiator });
}

function startInitiator({ host }: Bench): Initiator {
  const sessions: Session[] = [];
  const nodes = new Map<string, Map<string, string>>();
  const interfaces = new Set(["default"]);
  const calls: string[] = [];
  const state: Initiator = {
    sessions,
    nodes,
    interfaces,
    calls,
    password: undefined,
    down: new Set(),
    luns: new Set([1, 2]),
    multipath: false,
    hangs: undefined,
  };
  let started = 0;
  const remove = (path: string) => host.fs.apply([{ kind: "remove", path, recursive: true }]);
  const deviceOf = ({ host: number }: Session) => `/sys/class/iscsi_host/host${number}/device/session${number}`;
  const logIn = (portal: string, iface: string) => {
    const number = ++started;
    const session: Session = { portal, iface, host: number, disks: new Map() };
    sessions.push(session);
    const at = portal.lastIndexOf(":");
    const about = `${deviceOf(session)}/iscsi_session/session${number}`;
    const connection = `${deviceOf(session)}/connection${number}:0/iscsi_connection/connection${number}:0`;
    for (const [path, data] of [
      [`${about}/targetname`, iqn],
      [`${about}/ifacename`, iface],
      ...["", "persistent_"].flatMap((prefix) => [
        [`${connection}/${prefix}address`, portal.slice(0, at).replace(/[[\]]/g, "")] as const,
        [`${connection}/${prefix}port`, portal.slice(at + 1)] as const,
      ]),
      [`/sys/class/scsi_host/host${number}/scan`, ""],
    ] as const)
      host.files.put(path, { data: data === "" ? "" : `${data}\n` });
  };
  const addDisk = async (session: Session, lun: number) => {
    if (!state.luns.has(lun) || session.disks.has(lun)) return;
    const name = `sd${String.fromCharCode(96 + session.host)}${lun}`;
    session.disks.set(lun, name);
    host.files.put(`/dev/${name}`, { kind: "blockDevice" });
    host.files.put(`/sys/block/${name}/device/delete`, { data: "" });
    const block = `${deviceOf(session)}/target${session.host}:0:0/${session.host}:0:0:${lun}/block`;
    const link = `/dev/disk/by-path/ip-${session.portal.replace(/[[\]]/g, "")}-iscsi-${iqn}-lun-${lun}`;
    await host.fs.apply([
      { kind: "mkdir", path: `${block}/${name}`, parents: true },
      { kind: "mkdir", path: "/dev/disk/by-path", parents: true },
      { kind: "remove", path: link },
      { kind: "symlink", path: link, target: `/dev/${name}` },
    ]);
    const paths = sessions.flatMap((one) => one.disks.get(lun) ?? []);
    if (!state.multipath || paths.length < 2) return;
    host.files.put("/dev/dm-0", { kind: "blockDevice" });
    for (const path of paths) host.files.put(`/sys/block/dm-0/slaves/${path}`);
  };
  const dropDisk = async (session: Session, lun: number, name: string) => {
    session.disks.delete(lun);
    const link = `/dev/disk/by-path/ip-${session.portal.replace(/[[\]]/g, "")}-iscsi-${iqn}-lun-${lun}`;
    for (const path of [
      `/dev/${name}`,
      link,
      `/sys/block/${name}`,
      `${deviceOf(session)}/target${session.host}:0:0/${session.host}:0:0:${lun}`,
    ])
      await remove(path);
  };
  const { apply } = host.fs;
  /** The kernel's side of two files. */
  const notice = async (change: FileChange) => {
    if (change.kind !== "write") return;
    const scanned = /^\/sys\/class\/scsi_host\/host(\d+)\/scan$/.exec(change.path)?.[1];
    const session = sessions.find((one) => String(one.host) === scanned);
    if (session) await addDisk(session, Number(String(change.data).split(" ").at(-1)));
    const deleted = /^\/sys\/block\/(\w+)\/device\/delete$/.exec(change.path)?.[1];
    for (const one of sessions)
      for (const [lun, name] of one.disks) if (name === deleted) await dropDisk(one, lun, name);
  };
  host.fs.apply = async (changes, signal) => {
    await apply(changes, signal);
    for (const change of changes) await notice(change);
  };
  host.program("multipath", async ([option, device]) => {
    if (option !== "-f" || device !== "/dev/dm-0") return 1;
    await remove("/sys/block/dm-0");
    await remove("/dev/dm-0");
    return 0;
  });
  host.program("iscsiadm", iscsiadm);
  return state;

  async function iscsiadm(
    args: readonly string[],
    { stdout, stderr, killed }: Parameters<Program>[1],
  ): Promise<number> {
    calls.push(args.join(" "));
    if (state.hangs?.(calls.length)) return onAbort(killed).then(() => 137);
    const refuse = (line: string, code: number) => {
      stderr.write(`iscsiadm: ${line}\n`);
      return code;
    };
    const ofInterface = (name: string, operation: string | undefined) => {
      if (operation === "show") {
        if (!interfaces.has(name)) {
          stderr.write(
            `iSCSI ERROR: Failed to open /etc/iscsi/ifaces/${name} using read mode: 2 No such file or directory # idbm.c:_idbm_recs_read():834\n`,
          );
          return 6;
        }
        stdout.write(showDefault);
      } else if (operation === "new") interfaces.add(name);
      else if (operation === "delete" && !interfaces.delete(name)) {
        refuse(`Could not read iface info for ${name}.`, 7);
        return refuse(`Could not delete iface ${name}: invalid parameter`, 7);
      }
      return 0;
    };
    const discover = (portal: string, name: string) => {
      if (state.down.has(portal)) {
        const [address] = portal.split(":");
        for (let tries = 0; tries < 6; tries += 1)
          refuse(`cannot make connection to ${address}: Connection refused`, 4);
        refuse("connection login retries (reopen_max) 5 exceeded", 4);
        return refuse("Could not perform SendTargets discovery: encountered connection failure", 4);
      }
      nodes.set(`${portal} ${name}`, new Map());
      stdout.write(`${portal},1 ${iqn}\n`);
      return 0;
    };
    const [mode, operation, name] = [valueOf(args, "-m"), valueOf(args, "-o"), valueOf(args, "-I") ?? ""];
    const portal = valueOf(args, "-p") ?? "";
    if (mode === "iface") return ofInterface(name, operation);
    if (mode === "discoverydb") return args.includes("--discover") ? discover(portal, name) : 0;
    const record = nodes.get(`${portal} ${name}`);
    if (!record) return refuse("No records found", 21);
    if (operation === "delete") nodes.delete(`${portal} ${name}`);
    else if (operation === "update") record.set(valueOf(args, "-n") ?? "", valueOf(args, "-v") ?? "");
    else if (args.includes("--login")) {
      const what = `[iface: ${name}, target: ${iqn}, portal: ${portal.replace(":", ",")}]`;
      stdout.write(`Logging in to ${what}\n`);
      if (state.password !== undefined && record.get("node.session.auth.password") !== state.password) {
        refuse(`Could not login to ${what}.`, 24);
        refuse("initiator reported error (24 - iSCSI login failed due to authorization failure)", 24);
        return refuse("Could not log into all portals", 24);
      }
      logIn(portal, name);
      stdout.write(`Login to ${what} successful.\n`);
    } else if (args.includes("--logout")) {
      const at = sessions.findIndex((one) => one.portal === portal && one.iface === name);
      const [session] = at < 0 ? [] : sessions.splice(at, 1);
      if (!session) return refuse("No matching sessions found", 21);
      for (const [lun, disk] of session.disks) await dropDisk(session, lun, disk);
      await remove(`/sys/class/iscsi_host/host${session.host}`);
    }
    return 0;
  }
}
