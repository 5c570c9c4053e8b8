import { CodedError } from "../../../src/lib/errors.ts";

/** The oldest Engine API that has everything a kubelet needs (Docker Engine 20.10), and the newest that this provider supports.
 *  Every daemon since 20.10 supports a version in this range.
 *  @see https://docs.docker.com/reference/api/engine/version-history/ */
const minVersion = "1.41";
const maxVersion = "1.44";

/** Response to `GET /version`. */
export interface EngineVersion {
  readonly ApiVersion: string;
  readonly MinAPIVersion?: string;
  readonly Version: string;
  /** The daemon's components, itself first. */
  readonly Components?: readonly { readonly Name?: string }[];
}

/** Component name of a Docker Engine. */
const engineComponent = "Engine";

/** Returns the newest API version that both the daemon and this provider support.
 *  @throws CodedError failed_precondition, one sentence, if there is none. */
export function negotiateVersion(response: EngineVersion, socket: string): string {
  const { ApiVersion, MinAPIVersion, Version } = response;
  if (typeof ApiVersion !== "string" || typeof Version !== "string")
    throw new CodedError(
      "failed_precondition",
      `the server at ${socket} is not a Docker Engine: set providerConfig.socket to the Docker Engine's socket.`,
    );
  const name = daemonName(response);
  if (name !== undefined && name !== engineComponent)
    throw new CodedError(
      "failed_precondition",
      `the server at ${socket} identifies itself as ${JSON.stringify(name)}, and graftlet supports only the Docker Engine: set providerConfig.socket to a Docker Engine's socket.`,
    );
  const refuse = (what: string) =>
    new CodedError(
      "failed_precondition",
      `the Docker Engine at ${socket} is version ${Version} with API ${MinAPIVersion ?? ApiVersion} to ${ApiVersion}: ${what}`,
    );
  if (compareVersions(ApiVersion, minVersion) < 0)
    throw refuse(`upgrade it to Docker Engine 20.10 (API ${minVersion}) or newer for graftlet to run pods on it.`);
  if (MinAPIVersion && compareVersions(MinAPIVersion, maxVersion) > 0)
    throw refuse(
      `it no longer supports API ${maxVersion}, the newest that this graftlet supports; use a newer graftlet.`,
    );
  return compareVersions(ApiVersion, maxVersion) < 0 ? ApiVersion : maxVersion;
}

/** Returns the name that the daemon reports; undefined if it reports none. */
function daemonName({ Components }: EngineVersion): string | undefined {
  const name: unknown = Array.isArray(Components) ? (Components[0] as { Name?: unknown } | undefined)?.Name : undefined;
  return typeof name === "string" ? name.slice(0, maxNameLength) : undefined;
}

/** Maximum length of a name in messages. */
const maxNameLength = 64;

/** Compares API versions such as `1.41`: negative if `a` is older. */
export function compareVersions(a: string, b: string): number {
  const [aMajor = 0, aMinor = 0] = a.split(".").map(Number);
  const [bMajor = 0, bMinor = 0] = b.split(".").map(Number);
  return aMajor - bMajor || aMinor - bMinor;
}
