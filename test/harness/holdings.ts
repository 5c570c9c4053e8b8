import { readdirSync, readFileSync, readlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { addresses } from "./namespaces.ts";

/** All that a process has open, a line each that tells one from another: files, pipes, sockets with their addresses, watches of
 *  directories. Its connections to the API server are its own business and left out. */
export function holdings(pid: number): Set<string> {
  const connections = connectionsOf(pid);
  const held = readdirSync(`/proc/${pid}/fd`).flatMap((fd) => {
    const target = linkOf(`/proc/${pid}/fd/${fd}`);
    if (target === undefined) return [];
    if (target === "anon_inode:inotify") return watchesOf(pid, fd);
    const connection = connections.get(/^socket:\[(\d+)\]$/.exec(target)?.[1] ?? "");
    if (connection?.endsWith(`:${addresses.apiServerPort}`)) return [];
    return [`${fd} ${target} ${connection ?? ""}`];
  });
  return new Set(held);
}

/** What `now` has and `before` had not. */
export function gained(before: ReadonlySet<string>, now: ReadonlySet<string>): string[] {
  return [...now].filter((line) => !before.has(line));
}

/** Makes a process's memory of now its peak. @see https://man7.org/linux/man-pages/man5/proc_pid_clear_refs.5.html */
export function forgetPeak(pid: number): void {
  writeFileSync(`/proc/${pid}/clear_refs`, "5");
}

/** Resident memory of a process now and at its peak since `forgetPeak`, MiB. */
export function memoryOf(pid: number): { readonly now: number; readonly peak: number } {
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  const field = (name: string): number => Number(new RegExp(`^${name}:\\s+(\\d+) kB`, "m").exec(status)?.[1]) / 1024;
  return { now: field("VmRSS"), peak: field("VmHWM") };
}

/** Bytes that a process has read so far, sockets included. */
export function bytesRead(pid: number): number {
  return Number(/^rchar: (\d+)/m.exec(readFileSync(`/proc/${pid}/io`, "utf8"))?.[1]);
}

function linkOf(path: string): string | undefined {
  try {
    return readlinkSync(path);
  } catch {
    return undefined;
  }
}

function watchesOf(pid: number, fd: string): string[] {
  const info = readFileSync(join(`/proc/${pid}/fdinfo`, fd), "utf8");
  return info
    .split("\n")
    .filter((line) => line.startsWith("inotify "))
    .map((line) => `watch ${/ino:\S+ sdev:\S+/.exec(line)?.[0] ?? line}`);
}

/** The TCP connections of a process's network, `LOCAL -> REMOTE` by inode. */
function connectionsOf(pid: number): Map<string, string> {
  const found = new Map<string, string>();
  for (const file of ["tcp", "tcp6"]) {
    for (const line of readFileSync(`/proc/${pid}/net/${file}`, "utf8").trim().split("\n").slice(1)) {
      const [, local = "", remote = "", , , , , , , inode = ""] = line.trim().split(/\s+/);
      found.set(inode, `${portOf(local)} -> ${portOf(remote)}`);
    }
  }
  return found;
}

function portOf(address: string): string {
  return `:${Number.parseInt(address.split(":")[1] ?? "", 16)}`;
}
