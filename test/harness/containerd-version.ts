/** The containerds that the harness has: Debian's, and one built from its Go module. */
export const containerdVersions = ["1.6", "2.4"] as const;
export type ContainerdVersion = (typeof containerdVersions)[number];

/** The containerd that the tests are run with: `GRAFTLET_TEST_CONTAINERD`, Debian's unless given. Throws when there is none of
 *  that version. */
export function containerdUnderTest(): ContainerdVersion {
  return containerdNamed(process.env.GRAFTLET_TEST_CONTAINERD || "1.6", "GRAFTLET_TEST_CONTAINERD");
}

/** The containerd of a version. Throws, naming `source` as the place where it stands, when there is none. */
export function containerdNamed(version: string, source: string): ContainerdVersion {
  const known = containerdVersions.find((each) => each === version);
  if (known === undefined)
    throw new Error(`${source} is ${JSON.stringify(version)}: it is one of ${containerdVersions.join(", ")}`);
  return known;
}
