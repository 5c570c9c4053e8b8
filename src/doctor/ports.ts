import { readFile, readdir, readlink } from "node:fs/promises";
import { basename } from "node:path";
import { hasCode, messageOf } from "../lib/errors.ts";
import { type ListenAddress, tryListening } from "../server/listen.ts";
import { type Finding, type CheckResult, examine, failure, ok, warning } from "./findings.ts";

/** A listen address of graftlet's own machine. */
export interface Port extends ListenAddress {
  /** Name of the server. */
  readonly of: string;
}

export interface PortsExamination {
  readonly ports: readonly Port[];
  /** PID of the process that runs the node; undefined if unknown. */
  readonly runner: number | undefined;
  /** The processes that listen on a port, as far as they are visible. */
  readonly listenersAt: (port: number) => Promise<readonly ListeningProcess[]>;
}

/** Checks whether graftlet listens on its ports, or can. */
export async function examinePorts(of: PortsExamination, signal: AbortSignal): Promise<readonly Finding[]> {
  const checks = of.ports.map((port) => ({ name: "ports", look: () => verdictOf(port, of) }));
  return examine(checks, signal);
}

async function verdictOf(at: Port, { runner, listenersAt }: PortsExamination): Promise<CheckResult> {
  const place = `${at.of}, port ${at.port} on ${at.address}`;
  try {
    await tryListening(at);
  } catch (error) {
    if (!hasCode(error, "already_exists")) return failure(messageOf(error));
    const listeners = await listenersAt(at.port);
    if (listeners.some(({ pid }) => pid === runner)) return ok(`${place}: graftlet serves it (process ${runner})`);
    if (listeners.length === 0)
      return warning(`${place}: in use by a process that only root and graftlet's own user can see`);
    return failure([messageOf(error), ...listeners.map(listenerText)].join("; "));
  }
  if (runner === undefined) return ok(`${place}: free`);
  return warning(
    `${place}: free, although graftlet (process ${runner}) runs the node: it is still starting, or was started with other flags`,
  );
}

const listenerText = ({ pid, program }: ListeningProcess) => `process ${pid} (${program}) listens there`;

/** A process that listens on a port of this machine. */
interface ListeningProcess {
  readonly pid: number;
  /** File name of the process's program. */
  readonly program: string;
}

/** @returns the processes of this machine that listen on a TCP port, as far as this user may see them.
 *  @see https://man7.org/linux/man-pages/man5/proc_pid_net.5.html */
export async function listenersAt(port: number): Promise<readonly ListeningProcess[]> {
  const tables = await Promise.all(["tcp", "tcp6"].map((name) => textOf(`/proc/net/${name}`)));
  const sockets = new Set(tables.flatMap((table) => socketsIn(table, port)));
  const pids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name));
  const found = await Promise.all(pids.map(async (pid) => ((await holds(pid, sockets)) ? [await listener(pid)] : [])));
  return found.flat();
}

/** Socket links of the listeners on a port, from a table in the format of /proc/net/tcp. Pure. */
export function socketsIn(table: string, port: number): readonly string[] {
  const suffix = `:${port.toString(16).toUpperCase().padStart(4, "0")}`;
  return table.split("\n").flatMap((line) => {
    const [, local, , state, , , , , , inode] = line.trim().split(/\s+/);
    return state === listening && local?.endsWith(suffix) ? [`socket:[${inode}]`] : [];
  });
}

const listening = "0A";

async function holds(pid: string, sockets: ReadonlySet<string>): Promise<boolean> {
  if (sockets.size === 0) return false;
  const folder = `/proc/${pid}/fd`;
  const files = await readdir(folder).catch(() => []);
  const links = await Promise.all(files.map((file) => readlink(`${folder}/${file}`).catch(() => "")));
  return links.some((link) => sockets.has(link));
}

async function listener(pid: string): Promise<ListeningProcess> {
  const program = basename(await readlink(`/proc/${pid}/exe`).catch(() => "?"));
  return { pid: Number(pid), program };
}

const textOf = (path: string) => readFile(path, "utf8").catch(() => "");
