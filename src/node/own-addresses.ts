import { isIPv4 } from "node:net";
import { networkInterfaces } from "node:os";

/** Addresses of the machine that graftlet runs on, IPv4 before IPv6, without loopback and link-local ones. */
export function ownAddresses(): readonly string[] {
  const all = Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? []);
  const usable = all
    .filter(({ internal, address }) => !internal && !/^(169\.254\.|fe80:)/i.test(address))
    .map(({ address }) => address);
  return [...usable.filter((address) => isIPv4(address)), ...usable.filter((address) => !isIPv4(address))];
}
