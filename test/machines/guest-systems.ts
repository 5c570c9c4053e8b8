import type { ContainerdVersion } from "../harness/containerd-version.ts";
import { type GuestSizes, guestSizes } from "../harness/state.ts";

/** Systems that a machine with a kernel of its own can have, all made of Debian's packages. Each has cgroup v2 and systemd. */
export const guestSystemNames = ["debian-12", "debian-13", "sid"] as const;
export type GuestSystemName = (typeof guestSystemNames)[number];

/** A system as it is made. */
export interface GuestSystem {
  readonly title: string;
  readonly suite: string;
  /** The configuration that its containerd reads: that of this version. */
  readonly containerdConfig: ContainerdVersion;
}

export const guestSystems: Readonly<Record<GuestSystemName, GuestSystem>> = {
  "debian-12": { title: "Debian 12", suite: "bookworm", containerdConfig: "1.6" },
  "debian-13": { title: "Debian 13", suite: "trixie", containerdConfig: "1.6" },
  sid: { title: "Debian sid", suite: "unstable", containerdConfig: "2.4" },
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

/** What tells guests of this system from others. */
export function guestOf(system: GuestSystemName): Pick<GuestSizes, "system"> {
  return system === "debian-12" ? {} : { system };
}
