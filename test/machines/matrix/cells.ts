import type { ProviderName } from "../../harness/runtime-daemon.ts";
import { type SshServer, type SystemName, systems } from "../systems.ts";

/** A machine that the tour is made on. */
export interface Cell {
  readonly system: SystemName;
  readonly sshServer: SshServer;
  readonly runtime: "containerd" | "docker" | "crio";
}

const of = (system: SystemName, runtime: Cell["runtime"], sshServer: SshServer = "openssh"): Cell => ({
  system,
  runtime,
  sshServer,
});

/** All of them, in the order of the table. */
export const cells: readonly Cell[] = [
  of("debian-12", "containerd"),
  of("debian-12", "docker"),
  of("debian-13", "containerd"),
  of("debian-13", "docker"),
  of("debian-13", "containerd", "dropbear"),
  of("debian-13", "docker", "dropbear"),
  of("sid", "containerd"),
  of("sid", "docker"),
  of("docker-29", "docker"),
  of("crio", "crio"),
  of("uutils", "containerd"),
  of("uutils", "docker"),
  of("busybox", "containerd"),
  of("busybox", "docker"),
  of("busybox", "containerd", "dropbear"),
  of("busybox", "docker", "dropbear"),
];

/** A cell's name: `debian-13/docker`, `busybox/containerd/dropbear`. */
export function nameOf({ system, runtime, sshServer }: Cell): string {
  return [system, runtime, ...(sshServer === "openssh" ? [] : [sshServer])].join("/");
}

/** The cells that have one of these names, separated by spaces, or whose names begin so; all of an empty text. @throws when there are
 *  none. */
export function cellsNamed(asked: string): readonly Cell[] {
  const beginnings = asked.split(/\s+/).filter(Boolean);
  const names = new Set(cells.map(nameOf));
  const fits = (name: string, beginning: string) =>
    names.has(beginning) ? name === beginning : name.startsWith(beginning);
  const chosen = cells.filter(
    (cell) => beginnings.length === 0 || beginnings.some((beginning) => fits(nameOf(cell), beginning)),
  );
  if (chosen.length === 0) throw new Error(`ONLY is "${asked}": cells are ${cells.map(nameOf).join(" ")}`);
  return chosen;
}

/** The environment by which the harness makes a cell's machine. */
export function environmentOf({ system, runtime, sshServer }: Cell): Readonly<Record<string, string>> {
  const provider: ProviderName = runtime === "docker" ? "ssh-docker-systemd" : "ssh-systemd";
  return { GRAFTLET_TEST_PROVIDER: provider, GRAFTLET_TEST_SYSTEM: system, GRAFTLET_TEST_SSHD: sshServer };
}

/** Packages whose versions tell what a cell is, by the name of the program in the table. */
export function packagesOf({ system, runtime, sshServer }: Cell): Readonly<Record<string, string>> {
  return {
    ...(runtime === "docker" && !systems[system].built && { Docker: "docker.io" }),
    ...(runtime === "crio" ? { conmon: "conmon" } : { containerd: "containerd" }),
    runc: "runc",
    ...(sshServer === "dropbear" ? { dropbear: "dropbear-bin" } : { OpenSSH: "openssh-server" }),
    ...(systems[system].init === "systemd" && { systemd: "systemd" }),
  };
}

/** What a cell's machine is, in the table. */
export function titleOf({ system, sshServer }: Cell): string {
  return `${systems[system].title}${sshServer === "dropbear" ? ", dropbear" : ""}`;
}
