import { readMachineID } from "../host/facts.ts";
import type { Host } from "../seams/host.ts";
import { TargetError } from "../seams/provider.ts";

/** Refuses a machine whose ID differs from the expected one, for example because DHCP has reassigned the address. A machine
 *  without a machine ID is accepted.
 *  @param expected the machine's ID; undefined accepts any machine.
 *  @throws TargetError OtherMachine, one sentence; unavailable and deadline_exceeded like the host. */
export async function refuseOtherMachine(host: Host, expected: string | undefined, signal: AbortSignal): Promise<void> {
  if (expected === undefined) return;
  const found = await readMachineID(host, signal);
  if (found === "" || found === expected) return;
  const isReadable = /^[0-9a-f]{32}$/.test(found);
  const remedy = isReadable
    ? `correct its address, or accept this machine with the annotation graftlet.dev/accept-machine=${found}`
    : "correct its address";
  throw new TargetError(
    "OtherMachine",
    "failed_precondition",
    `another machine has this address: its machine ID is ${isReadable ? found : "not valid"}, but the node is bound to ${expected}: ${remedy}`,
  );
}
