import { join } from "node:path";
import { must } from "../harness/processes.ts";
import { type Layout, readState } from "../harness/state.ts";
import { guestLogin, sharedArgv, shellLine } from "./guest-link.ts";

/** Whether the target of a cluster is a guest that runs. */
export function hasGuest(layout: Layout): boolean {
  return readState(layout)?.guest !== undefined;
}

/** The command that runs `argv` in the guest, as root; its process is the one here, whose end leaves what it has begun. */
export function guestArgv(layout: Layout, argv: readonly string[], cwd = "/"): string[] {
  return [...sharedArgv(guestFolder(layout)), guestLogin, shellLine(["env", `--chdir=${cwd}`, ...argv])];
}

/** The guest's files as a path of this machine: read and written through its way in. */
export function guestRoot(layout: Layout): string {
  const holder = readState(layout)?.holder;
  return join(`/proc/${holder?.pid}/root`, guestFolder(layout), "root");
}

/** Copies folders and files of this machine to the same paths of the guest. */
export async function copyIn(layout: Layout, paths: readonly string[]): Promise<void> {
  await must(["sh", "-ec", copyInLine(layout, paths)]);
}

/** The line for a shell that does so. */
export function copyInLine(layout: Layout, paths: readonly string[]): string {
  const argv = guestArgv(layout, ["tar", "-x", "--no-same-owner", "-C", "/"]);
  const pack = ["tar", "-c", "-C", "/", ...paths.map((path) => path.slice(1))];
  return `${shellLine(pack)} | ${shellLine(argv)}`;
}

/** Where a cluster keeps what its guest is made of. */
export function guestFolder({ dir }: Layout): string {
  return join(dir, "guest");
}

/** The line for a shell that copies a folder of the guest to the same path of this machine. */
export function copyOut(layout: Layout, folder: string): string {
  return `${shellLine(guestArgv(layout, ["tar", "-c", "-C", "/", folder.slice(1)]))} | ${shellLine(["tar", "-x", "--no-same-owner", "-C", "/"])}`;
}
