import type { ProviderName } from "../../harness/runtime-daemon.ts";
import { type GuestSystemName, guestSystems } from "../guest-systems.ts";
import { type SshServer, type SystemName, systems } from "../systems.ts";

/** A machine that the tour is made on: on this machine's kernel, or with one of its own and cgroup v2. */
export type Cell = OwnKernelCell | SharedKernelCell;

export interface OwnKernelCell {
  readonly kernel: "own";
  readonly system: GuestSystemName;
  readonly sshServer: "openssh";
  readonly runtime: "containerd" | "docker" | "crio";
}

export interface SharedKernelCell {
  readonly kernel: "shared";
  readonly system: SystemName;
  readonly sshServer: SshServer;
  readonly runtime: "containerd" | "docker" | "crio";
}

const of = (
  system: SystemName,
  runtime: SharedKernelCell["runtime"],
  sshServer: SshServer = "openssh",
): SharedKernelCell => ({ kernel: "shared", system, runtime, sshServer });

const guest = (system: GuestSystemName, runtime: OwnKernelCell["runtime"]): OwnKernelCell => ({
  kernel: "own",
  system,
  runtime,
  sshServer: "openssh",
});

/** All of them, in the order of the table. */
export const cells: readonly Cell[] = [
  of("debian-12", "containerd"),
  of("debian-12", "docker"),
  of("debian-13", "containerd"),
  of("debian-13", "docker"),
  of("debian-13", "docker", "openssh-socket"),
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
  guest("debian-12", "containerd"),
  guest("debian-12", "docker"),
  guest("debian-13", "containerd"),
  guest("debian-13", "docker"),
  guest("sid", "containerd"),
  guest("sid", "docker"),
  guest("crun", "containerd"),
  guest("crun", "docker"),
  guest("crio", "crio"),
];

/** A cell's name: `debian-13/docker`, `busybox/containerd/dropbear`, `guest/debian-13/containerd`. */
export function nameOf({ kernel, system, runtime, sshServer }: Cell): string {
  const words = [
    ...(kernel === "own" ? ["guest"] : []),
    system,
    runtime,
    ...(sshServer === "openssh" ? [] : [sshServer]),
  ];
  return words.join("/");
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
export function environmentOf({ kernel, system, runtime, sshServer }: Cell): Readonly<Record<string, string>> {
  const way = runtime === "docker" ? "ssh-docker" : "ssh";
  const provider: ProviderName = kernel === "own" ? `${way}-guest` : `${way}-systemd`;
  return { GRAFTLET_TEST_PROVIDER: provider, GRAFTLET_TEST_SYSTEM: system, GRAFTLET_TEST_SSHD: sshServer };
}

/** Packages whose versions tell what a cell is, by the name of the program in the table. */
export function packagesOf({ runtime, sshServer, ...cell }: Cell): Readonly<Record<string, string>> {
  const ociRuntime = cell.kernel === "own" ? guestSystems[cell.system].ociRuntime : "runc";
  const hasSystemd = cell.kernel === "own" || systems[cell.system].init === "systemd";
  return {
    ...(cell.kernel === "own" && { Linux: "linux-image-cloud-amd64" }),
    ...(runtime === "docker" && !builtRuntimeOf(cell) && { Docker: "docker.io" }),
    ...(runtime === "crio" ? { conmon: "conmon" } : { containerd: "containerd" }),
    [ociRuntime]: ociRuntime,
    ...(sshServer === "dropbear" ? { dropbear: "dropbear-bin" } : { OpenSSH: "openssh-server" }),
    ...(hasSystemd && { systemd: "systemd" }),
  };
}

/** The runtime that the harness builds for a cell's machine. */
export function builtRuntimeOf(
  cell: Pick<OwnKernelCell, "kernel" | "system"> | Pick<SharedKernelCell, "kernel" | "system">,
) {
  return (cell.kernel === "own" ? guestSystems[cell.system] : systems[cell.system]).built;
}

/** What the SSH server adds to a machine's title. */
const ofServer: Readonly<Record<SshServer, string>> = {
  openssh: "",
  "openssh-socket": ", sshd by socket",
  dropbear: ", dropbear",
};

/** What a cell's machine is, in the table. */
export function titleOf({ sshServer, ...cell }: Cell): string {
  if (cell.kernel === "own") return `${guestSystems[cell.system].title}, own kernel`;
  return `${systems[cell.system].title}${ofServer[sshServer]}`;
}
