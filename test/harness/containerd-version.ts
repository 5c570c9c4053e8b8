/** The containerds that the harness has: Debian's, and one built from its Go module. */
export const containerdVersions = ["1.6", "2.4"] as const;
export type ContainerdVersion = (typeof containerdVersions)[number];

/** The containerd that the tests are run with: `GRAFTLET_TEST_CONTAINERD`; unless given Debian's, or the other one with a Docker Engine that
 *  is not Debian's, which runs it and its runc. Throws when there is none of that version. */
export function containerdUnderTest(): ContainerdVersion {
  const { GRAFTLET_TEST_CONTAINERD: asked, GRAFTLET_TEST_DOCKER: docker = "" } = process.env;
  const usual = docker === "" || docker === "20.10" ? "1.6" : "2.4";
  return containerdNamed(asked || usual, "GRAFTLET_TEST_CONTAINERD");
}

/** The containerd of a version. Throws, naming `source` as the place where it stands, when there is none. */
export function containerdNamed(version: string, source: string): ContainerdVersion {
  const known = containerdVersions.find((each) => each === version);
  if (known === undefined)
    throw new Error(`${source} is ${JSON.stringify(version)}: it is one of ${containerdVersions.join(", ")}`);
  return known;
}
