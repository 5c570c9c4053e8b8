import { join } from "node:path";
import { addresses } from "../harness/namespaces.ts";
import type { GuestImage } from "./guest-image.ts";

/** Settings of ssh for the harness's own way in: as root, to whoever answers at a guest's address. */
export function sshOptions({ key }: Pick<GuestImage, "key">): string[] {
  const options = [
    "StrictHostKeyChecking=no",
    "UserKnownHostsFile=/dev/null",
    "BatchMode=yes",
    "LogLevel=ERROR",
    "ConnectTimeout=30",
    "ServerAliveInterval=10",
    "ServerAliveCountMax=6",
  ];
  return ["-F", "none", "-i", key, ...options.flatMap((option) => ["-o", option])];
}

/** Who logs in, and where. */
export const guestLogin = `root@${addresses.guest}`;

/** The connection that all commands share: a log-in takes a guest seconds. */
export function controlSocket(folder: string): string {
  return join(folder, "ssh");
}

/** The command line of the process that keeps the shared connection, with local sockets that lead to sockets of the guest; it ends
 *  when the guest has been silent for a minute. */
export function masterArgv(image: GuestImage, folder: string, sockets: readonly string[]): string[] {
  const forwards = sockets.flatMap((path) => ["-L", `${path}:${path}`]);
  const options = ["-o", "StreamLocalBindUnlink=yes", "-M", "-S", controlSocket(folder), "-N"];
  return ["ssh", ...sshOptions(image), ...options, ...forwards, guestLogin];
}

/** The way to the guest through the shared connection; no other is tried. */
export function sharedArgv(folder: string): string[] {
  return ["ssh", "-F", "none", "-o", "ProxyCommand=false", "-o", "LogLevel=ERROR", "-S", controlSocket(folder)];
}

/** One line for a shell that runs `argv` as it is. */
export function shellLine(argv: readonly string[]): string {
  return argv.map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`)).join(" ");
}
