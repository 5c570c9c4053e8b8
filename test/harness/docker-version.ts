import type { ProviderName } from "./runtime-daemon.ts";

/** Docker Engines of the harness: Debian's, and those built from their Go modules, which start containerd 2.4 of the harness. */
const dockerVersions = ["20.10", "28", "29"] as const;
export type DockerVersion = (typeof dockerVersions)[number];

/** The Docker Engine that a provider is run with: `GRAFTLET_TEST_DOCKER`, Debian's unless given, and on a machine with a system of its own,
 *  which brings it. Throws when there is none of that version. */
export function dockerUnderTest(provider: ProviderName): DockerVersion {
  const version = process.env.GRAFTLET_TEST_DOCKER || "20.10";
  const known = dockerVersions.find((each) => each === version);
  if (known === undefined)
    throw new Error(`GRAFTLET_TEST_DOCKER is ${JSON.stringify(version)}: it is one of ${dockerVersions.join(", ")}`);
  return provider === "docker" || provider === "ssh-docker" ? known : "20.10";
}
