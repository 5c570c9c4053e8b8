import type { CgroupDriver } from "../../src/pod/cgroup-path.ts";
import type { ContainerdVersion } from "../harness/containerd-version.ts";
import type { BuiltRuntime } from "../harness/tools.ts";
import { type Layout, type MachineSystem, readState } from "../harness/state.ts";
import { type DebianRecipe, unread } from "./debian.ts";
import { guestSystemOf } from "./guest-systems.ts";

/** Systems that a machine with a systemd can have, all made of Debian's packages. */
export const systemNames = ["debian-12", "debian-13", "sid", "docker-29", "crio", "uutils", "busybox"] as const;
export type SystemName = (typeof systemNames)[number];

/** SSH servers that such a machine can have. With `openssh-socket`, a listener starts an sshd for each connection. */
export const sshServers = ["openssh", "openssh-socket", "dropbear"] as const;
export type SshServer = (typeof sshServers)[number];

/** A system as it is made. */
export interface System extends DebianRecipe {
  /** What it is, in a table. */
  readonly title: string;
  /** The configuration that its containerd reads: that of this version. */
  readonly containerdConfig: ContainerdVersion;
  /** Process 1, which starts daemons and makes cgroups; none where that process does neither, as in a container. */
  readonly init: "systemd" | "none";
  /** Who makes the cgroups of pods. */
  readonly cgroupDriver: CgroupDriver;
  /** Shell scripts that run on it, once it is installed. */
  readonly after?: readonly string[];
  /** The runtime that the harness builds and that runs in place of Debian's. */
  readonly built?: BuiltRuntime;
  /** A user with sudo, in place of root, as whom graftlet logs in. */
  readonly sudoUser?: string;
}

/** What every system has. */
const base = [
  ..."systemd systemd-sysv dbus libpam-systemd openssh-server util-linux kmod procps iproute2".split(" "),
  ..."containerd docker.io runc containernetworking-plugins iptables conntrack".split(" "),
] as const;

/** What graftlet uses where it finds it. */
const useful = ["socat", "inotify-tools", "sudo"] as const;

/** uutils' programs under the names of GNU's, which Debian's package puts aside; sudo-rs as sudo, with the
 *  configuration of the other sudo's package. */
const uutils = [
  'for program in /usr/lib/cargo/bin/coreutils/*; do ln -sf /usr/bin/coreutils "/usr/bin/${program##*/}"; done',
  "ln -sf sudo-rs /usr/bin/sudo",
];

/** Programs of busybox that systemd, dpkg and the harness have others of: what they are called with, busybox does not know. */
const keptBesideBusybox = "busybox|init|linuxrc|halt|poweroff|reboot|setpriv|dpkg|dpkg-deb";

/** busybox for all that it knows; no Perl and no Python, as on a router or a NAS. */
const busyboxAlone = [
  `for program in $(busybox --list); do case $program in ${keptBesideBusybox}) ;; *) rm -f /usr/sbin/$program; ln -sf /usr/bin/busybox /usr/bin/$program;; esac; done`,
  "sed -i '/^root:/s|/bin/bash$|/bin/sh|' /etc/passwd",
  "rm -f /usr/bin/perl* /usr/bin/python3*",
];

const sid: System = {
  title: "Debian sid",
  // Its systemd runs on cgroup v2 alone.
  init: "none",
  cgroupDriver: "cgroupfs",
  suite: "unstable",
  packages: [...base, ...useful],
  without: unread,
  containerdConfig: "2.4",
};

export const systems: Readonly<Record<SystemName, System>> = {
  "debian-12": {
    title: "Debian 12",
    init: "systemd",
    cgroupDriver: "systemd",
    suite: "bookworm",
    packages: [...base, ...useful],
    without: unread,
    containerdConfig: "1.6",
  },
  "debian-13": {
    title: "Debian 13",
    init: "systemd",
    // On cgroup v1 its systemd takes a pod's first process out of its cgroup for devices, as that is none of the controllers that it
    // delegates; a runtime that is started again has lost that sandbox.
    cgroupDriver: "cgroupfs",
    suite: "trixie",
    packages: [...base, ...useful, "dropbear"],
    without: unread,
    containerdConfig: "1.6",
  },
  sid,
  "docker-29": { ...sid, title: "Debian sid with Docker 29", built: "docker-29" },
  crio: {
    title: "Debian 13 with CRI-O",
    init: "none",
    cgroupDriver: "cgroupfs",
    suite: "trixie",
    packages: [...base, ...useful, "conmon"],
    without: unread,
    containerdConfig: "1.6",
    built: "crio",
  },
  uutils: {
    title: "Debian sid with uutils and sudo-rs",
    init: "none",
    cgroupDriver: "cgroupfs",
    suite: "unstable",
    packages: [...base, "rust-coreutils", "sudo", "sudo-rs"],
    without: unread,
    containerdConfig: "2.4",
    after: uutils,
    sudoUser: "deploy",
  },
  busybox: {
    title: "Debian 13 with busybox alone",
    init: "none",
    cgroupDriver: "cgroupfs",
    suite: "trixie",
    packages: [...base, "busybox", "dropbear"],
    without: unread,
    containerdConfig: "1.6",
    after: busyboxAlone,
  },
};

/** What machines with a systemd are made of: `GRAFTLET_TEST_SYSTEM` is Debian 12 unless given, `GRAFTLET_TEST_SSHD` OpenSSH. Throws when
 *  there is none of the name, or the system has no such SSH server. */
export function machineUnderTest(): MachineSystem {
  const system = named(systemNames, "GRAFTLET_TEST_SYSTEM");
  const sshServer = named(sshServers, "GRAFTLET_TEST_SSHD");
  if (sshServer === "dropbear" && !systems[system].packages.includes("dropbear"))
    throw new Error(`the machine ${system} has no dropbear: add it to its packages in test/machines/systems.ts`);
  return { system, sshServer };
}

/** What a cluster's target is made of, where it is a machine that runs on this machine's kernel. */
export function systemOf(layout: Layout): MachineSystem {
  return readState(layout)?.machineSystem ?? { system: "debian-12", sshServer: "openssh" };
}

/** The runtime that a cluster's target has from the harness rather than from Debian; undefined if it has Debian's. */
export function builtOf(layout: Layout): BuiltRuntime | undefined {
  return (guestSystemOf(layout) ?? systems[systemOf(layout).system]).built;
}

/** Whether its runtime is CRI-O, in containerd's place. */
export function hasCrio(layout: Layout): boolean {
  return builtOf(layout) === "crio";
}

/** The cgroup driver of a machine's runtime: systemd if the machine has its own kernel. */
export function cgroupDriverOf(layout: Layout): CgroupDriver {
  return guestSystemOf(layout) ? "systemd" : systems[systemOf(layout).system].cgroupDriver;
}

/** Process 1 of such a machine. */
export function initOf(layout: Layout): System["init"] {
  return systems[systemOf(layout).system].init;
}

function named<T extends string>(names: readonly [T, ...T[]], variable: string): T {
  const asked = process.env[variable] || names[0];
  const known = names.find((name) => name === asked);
  if (known === undefined) throw new Error(`${variable} is ${JSON.stringify(asked)}: it is one of ${names.join(", ")}`);
  return known;
}
