/** Normalizes an IPv4 subnet: `10.88.0.7/24` is `10.88.0.0/24`. Undefined for any other text. */
export function ipv4Subnet(text: string): string | undefined {
  const parts = /^(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})\/(\d{1,2})$/.exec(text.trim())?.slice(1).map(Number);
  if (!parts) return undefined;
  const [bits = 0, ...bytes] = [parts.at(-1), ...parts.slice(0, 4)].map(Number);
  if (bits > 32 || bytes.some((byte) => byte > 255)) return undefined;
  const size = 2 ** (32 - bits);
  const address = bytes.reduce((sum, byte) => sum * 256 + byte, 0);
  const first = address - (address % size);
  return `${[24, 16, 8, 0].map((shift) => Math.floor(first / 2 ** shift) % 256).join(".")}/${bits}`;
}

/** The IPv4 subnet of a node's comma-separated pod CIDRs, which have at most one of each family. */
export function ipv4SubnetIn(podCidrs: string): string | undefined {
  return podCidrs
    .split(",")
    .map(ipv4Subnet)
    .find((subnet) => subnet !== undefined);
}
