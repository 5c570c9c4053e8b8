import { isIPv4, isIPv6 } from "node:net";
import { CodedError } from "../lib/errors.ts";

/** A node's addresses, primary first, at most one per family.
 *  @param wanted addresses of --node-ip: none, addresses, or 0.0.0.0 or :: to prefer a family.
 *  @param found the target's own, best first.
 *  @throws failed_precondition when there is none. */
export function chooseAddresses(wanted: readonly string[], found: readonly string[]): readonly string[] {
  const preferSix = wanted[0] !== undefined && /^[0:]+$/.test(wanted[0]) && isIPv6(wanted[0]);
  if (wanted.length > 0 && !preferSix && wanted[0] !== "0.0.0.0") return wanted;
  const four = found.find((address) => isIPv4(address));
  const six = found.find((address) => isIPv6(address));
  const first = preferSix ? (six ?? four) : (four ?? six);
  if (first === undefined)
    throw new CodedError("failed_precondition", "the target has only loopback addresses: set --node-ip");
  return [first];
}
