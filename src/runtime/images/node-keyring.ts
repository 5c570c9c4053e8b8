import { join } from "node:path";
import { messageOf } from "../../lib/errors.ts";
import type { ClockAndLog } from "../../lib/log.ts";
import { type DockerConfigLayout, type Logins, parseDockerConfig } from "./docker-config.ts";
import { keyringOf } from "./keyring.ts";
import type { PodKeyring } from "./pod-credentials.ts";

export interface NodeKeyringDeps extends ClockAndLog {
  /** The node's root directory. */
  readonly rootDir: string;
  /** Graftlet's working directory; it may be gone. */
  readonly workingDir: string;
  /** The user's home directory; undefined if there is none. */
  readonly home: string | undefined;
  /** @throws if there is no such file. */
  readonly readFile: (path: string) => Promise<string>;
}

/** How long a parsed configuration is cached, milliseconds. */
const cacheMs = 5 * 60_000;

/** Credentials for all pods of the node: the first readable Docker configuration on the machine where graftlet runs. They are never
 *  written to the target.
 *  @see https://kubernetes.io/docs/concepts/containers/images/#configuring-nodes-to-authenticate-to-a-private-registry */
export function createNodeKeyring(deps: NodeKeyringDeps): PodKeyring {
  const { clock } = deps;
  let known: { readonly logins: Promise<Logins>; readonly until: number } | undefined;
  return async () => {
    if (!known || clock.monotonic() >= known.until)
      known = { logins: readLogins(deps), until: clock.monotonic() + cacheMs };
    return keyringOf(await known.logins, undefined);
  };
}

async function readLogins({ rootDir, workingDir, home, readFile, log }: NodeKeyringDeps): Promise<Logins> {
  const directories: readonly (readonly [DockerConfigLayout, readonly string[]])[] = [
    ["config.json", [rootDir, workingDir, ...(home ? [join(home, ".docker")] : []), "/.docker"]],
    [".dockercfg", [rootDir, workingDir, ...(home ? [home] : []), "/"]],
  ];
  for (const [layout, candidates] of directories) {
    for (const path of candidates.map((place) => join(place, layout))) {
      const text = await readFile(path).catch(() => undefined);
      if (text === undefined) continue;
      try {
        return parseDockerConfig(text, layout);
      } catch (error) {
        log.warn({ file: path }, `ignoring Docker configuration: it ${messageOf(error)}`);
      }
    }
  }
  return [];
}
