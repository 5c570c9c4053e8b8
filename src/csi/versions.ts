import { CodedError, messageOf } from "../lib/errors.ts";

/** Components of a version, the most significant first. */
export type Version = readonly number[];

/** Version as text. Pure. */
export function versionText(version: Version): string {
  return version.join(".");
}

/** The highest version of the service that both the driver and this node support. Pure.
 *  @throws invalid_argument, in the kubelet's words, if there is none. */
export function highestVersion(versions: readonly string[]): Version {
  let highest: Version | undefined;
  let why = "<nil>";
  for (const text of versions.toReversed()) {
    try {
      const version = parseVersion(text);
      if ((version[0] ?? 0) <= 1 && (!highest || isLess(highest, version))) highest = version;
    } catch (error) {
      why = messageOf(error);
    }
  }
  if (!highest)
    throw invalidVersion(
      `could not find a highest supported version from versions ([${versions.join(" ")}]) reported: ${why}`,
    );
  if (highest[0] !== 1)
    throw invalidVersion(`highest supported version reported is ${versionText(highest)}, must be v1.x`);
  return highest;
}

/** True if the first version is lower. Pure. */
export function isLess(one: Version, other: Version): boolean {
  const places = Math.max(one.length, other.length);
  for (let at = 0; at < places; at += 1) {
    const [own = 0, others = 0] = [one[at], other[at]];
    if (own !== others) return own < others;
  }
  return false;
}

/** Parses at least two numbers separated by dots; a suffix is ignored. */
function parseVersion(text: string): Version {
  const numbers = /^\s*v?([0-9]+(?:\.[0-9]+)*)/.exec(text)?.[1];
  if (numbers === undefined) throw invalidVersion(`could not parse ${JSON.stringify(text)} as version`);
  const parts = numbers.split(".");
  if (parts.length < 2) throw invalidVersion(`illegal version string ${JSON.stringify(text)}`);
  const [first = ""] = parts;
  if (first.startsWith("0") && first !== "0")
    throw invalidVersion(`illegal zero-prefixed version component ${JSON.stringify(first)} in ${JSON.stringify(text)}`);
  return parts.map(Number);
}

function invalidVersion(why: string): CodedError {
  return new CodedError("invalid_argument", why);
}
