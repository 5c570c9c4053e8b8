import type { ContainerdVersion } from "../harness/containerd-version.ts";
import { type GuestSizes, guestSizes, type Layout, readState } from "../harness/state.ts";
import type { BuiltRuntime } from "../harness/tools.ts";

/** Systems that a machine with a kernel of its own can have, all made of Debian's packages. Each has cgroup v2 and systemd. */
export const guestSystemNames = ["debian-12", "debian-13", "sid", "crun", "crio", "no-memory-cgroup"] as const;
export type GuestSystemName = (typeof guestSystemNames)[number];

/** A system as it is made. */
export interface GuestSystem {
  readonly title: string;
  readonly suite: string;
  /** The system whose disk it boots; one of its own unless given. */
  readonly disk?: GuestSystemName;
  /** Packages that it has beside those of all guests. */
  readonly packages?: readonly string[];
  /** The configuration that its containerd reads: that of this version. */
  readonly containerdConfig: ContainerdVersion;
  /** What its runtime runs containers with. */
  readonly ociRuntime: OciRuntime;
  /** The runtime that the harness builds and that runs in containerd's place. */
  readonly built?: BuiltRuntime;
  /** Files that it has besides: path below / and text. */
  readonly files?: Readonly<Record<string, string>>;
  /** What its kernel is told beside what all are. */
  readonly kernelArguments?: string;
}

/** systemd gives a pod's interface another address once it is there, which CRI-O takes for a broken network. */
const ownAddresses = { "etc/systemd/network/10-pods.link": "[Match]\nDriver=veth\n[Link]\nMACAddressPolicy=none\n" };

export type OciRuntime = "runc" | "crun";

const debian13 = { suite: "trixie", containerdConfig: "1.6", ociRuntime: "runc" } as const;

export const guestSystems: Readonly<Record<GuestSystemName, GuestSystem>> = {
  "debian-12": { title: "Debian 12", suite: "bookworm", containerdConfig: "1.6", ociRuntime: "runc" },
  "debian-13": { title: "Debian 13", ...debian13 },
  sid: { title: "Debian sid", suite: "unstable", containerdConfig: "2.4", ociRuntime: "runc" },
  crun: { title: "Debian 13 with crun", ...debian13, disk: "debian-13", ociRuntime: "crun" },
  crio: {
    title: "Debian 13 with CRI-O",
    ...debian13,
    packages: ["conmon"],
    ociRuntime: "crun",
    built: "crio",
    files: ownAddresses,
  },
  "no-memory-cgroup": {
    title: "Debian 13 without the memory controller",
    ...debian13,
    disk: "debian-13",
    kernelArguments: "cgroup_disable=memory",
  },
};

/** A guest that a test asks nothing special of, with the system of `GRAFTLET_TEST_SYSTEM`: Debian 12 unless given. Throws when no guest has
 *  that system. */
export function guestUnderTest(): GuestSizes {
  const asked = process.env.GRAFTLET_TEST_SYSTEM || "debian-12";
  const known = guestSystemNames.find((name) => name === asked);
  if (known === undefined)
    throw new Error(
      `GRAFTLET_TEST_SYSTEM is ${JSON.stringify(asked)}: for a guest it is one of ${guestSystemNames.join(", ")}`,
    );
  return { ...guestSizes, ...guestOf(known) };
}

/** The system of a cluster's target that has a kernel of its own; undefined of other targets. */
export function guestSystemOf(layout: Layout): GuestSystem | undefined {
  const sizes = readState(layout)?.guestSizes;
  return sizes && guestSystems[sizes.system ?? "debian-12"];
}

/** What tells guests of this system from others. */
export function guestOf(system: GuestSystemName): Pick<GuestSizes, "system"> {
  return system === "debian-12" ? {} : { system };
}
