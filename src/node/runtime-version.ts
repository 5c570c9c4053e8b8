/** Version of a runtime that reports none, or an invalid one. */
export const unknownVersion = "Unknown";

/** Formats a runtime's version as the kubelet does: `v2.1.4` becomes 2.1.4; if it is not a semantic version, such as 1.6.20~ds1, only the
 *  numbers remain. (kubelet, newRuntimeVersion)
 *  @see https://semver.org/#backusnaur-form-grammar-for-valid-semver-versions */
export function formatRuntimeVersion(told: string): string {
  const [, numbers, extra = ""] = /^\s*v?(\d+(?:\.\d+)*)(.*)$/.exec(told) ?? [];
  if (numbers === undefined) return unknownVersion;
  const parts = numbers.split(".");
  const suffix = parts.length === 3 && !parts.some(hasLeadingZero) ? semanticSuffix(extra) : undefined;
  if (suffix !== undefined) return `${numbers}${suffix}`;
  const [first = ""] = parts;
  if (parts.length < 2 || hasLeadingZero(first)) return unknownVersion;
  return parts.map(BigInt).join(".");
}

/** Pre-release and build metadata; undefined for anything else. */
function semanticSuffix(extra: string): string | undefined {
  const name = "[0-9A-Za-z-]+(?:\\.[0-9A-Za-z-]+)*";
  const [, suffix, preRelease = ""] = new RegExp(`^((?:-(${name}))?(?:\\+${name})?)\\s*$`).exec(extra) ?? [];
  if (preRelease.split(".").some((part) => /^\d+$/.test(part) && hasLeadingZero(part))) return undefined;
  return suffix;
}

function hasLeadingZero(digits: string): boolean {
  return digits.startsWith("0") && digits !== "0";
}
