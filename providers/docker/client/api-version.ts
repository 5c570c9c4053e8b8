import { CodedError } from "../../../src/lib/errors.ts";

/** The oldest Engine API with what a kubelet needs (Docker Engine 20.10), and the newest that this provider speaks. Every daemon
 *  from 20.10 on serves one of these. @see https://docs.docker.com/reference/api/engine/version-history/ */
const oldest = "1.41";
const newest = "1.44";

/** The daemon's answer to `GET /version`. */
export interface EngineVersion {
  readonly ApiVersion: string;
  readonly MinAPIVersion?: string;
  readonly Version: string;
  /** The parts of the daemon, itself first. */
  readonly Components?: readonly { readonly Name?: string }[];
}

/** What a Docker Engine calls itself. */
const ownName = "Engine";

/** The newest API version that both the daemon and this provider speak.
 *  @throws CodedError failed_precondition, one sentence, when there is none. */
export function agreedVersion(answer: EngineVersion, socket: string): string {
  const { ApiVersion, MinAPIVersion, Version } = answer;
  if (typeof ApiVersion !== "string" || typeof Version !== "string")
    throw new CodedError(
      "failed_precondition",
      `what answers at ${socket} is not a Docker Engine: name its socket in providerConfig.socket.`,
    );
  const name = nameOf(answer);
  if (name !== undefined && name !== ownName)
    throw new CodedError(
      "failed_precondition",
      `what answers at ${socket} calls itself ${JSON.stringify(name)}: graftlet runs pods on a Docker Engine alone; name its socket in providerConfig.socket.`,
    );
  const refuse = (what: string) =>
    new CodedError(
      "failed_precondition",
      `the Docker Engine at ${socket} is version ${Version} with API ${MinAPIVersion ?? ApiVersion} to ${ApiVersion}: ${what}`,
    );
  if (compareVersions(ApiVersion, oldest) < 0)
    throw refuse(`upgrade it to Docker Engine 20.10 (API ${oldest}) or newer for graftlet to run pods on it.`);
  if (MinAPIVersion && compareVersions(MinAPIVersion, newest) > 0)
    throw refuse(`it no longer serves API ${newest}, the newest that this graftlet speaks; use a newer graftlet.`);
  return compareVersions(ApiVersion, newest) < 0 ? ApiVersion : newest;
}

/** What the daemon calls itself; undefined where it does not say. */
function nameOf({ Components }: EngineVersion): string | undefined {
  const name: unknown = Array.isArray(Components) ? (Components[0] as { Name?: unknown } | undefined)?.Name : undefined;
  return typeof name === "string" ? name.slice(0, longestName) : undefined;
}

/** Characters of a name that is shown. */
const longestName = 64;

/** Compares API versions such as `1.41`: negative where `a` is the older one. */
export function compareVersions(a: string, b: string): number {
  const [aMajor = 0, aMinor = 0] = a.split(".").map(Number);
  const [bMajor = 0, bMinor = 0] = b.split(".").map(Number);
  return aMajor - bMajor || aMinor - bMinor;
}
