import { createTargetRefusal } from "../host/target-refusal.ts";
import type { Logger } from "../lib/log.ts";
import type { Host } from "../seams/host.ts";
import { checkPolicy, restoredState } from "./check-state.ts";
import { idleMachine } from "./machine-state.ts";
import { readMemoryTopology } from "./numa-memory.ts";
import { type Reservations, systemReservedOf } from "./reservations.ts";
import { readState } from "./state-file.ts";
import type { MemoryState } from "./static-policy.ts";

export interface MemoryManagerSettings extends Reservations {
  readonly rootDir: string;
  /** KubeletConfiguration.memoryManagerPolicy */
  readonly policy: "None" | "Static";
}

/** Reads what the memory manager needs from the target, which it does not change.
 *  @returns the target's memory with what containers had before a restart; undefined for policy None.
 *  @throws TargetError in the kubelet's words if the policy cannot be used on the target, or its state there is of another policy or
 *  machine; unavailable. */
export async function openMemory(
  settings: MemoryManagerSettings,
  host: Pick<Host, "run" | "budget"> & { readonly fs: Pick<Host["fs"], "readFile"> },
  log: Logger,
  signal: AbortSignal,
): Promise<MemoryState | undefined> {
  const { rootDir } = settings;
  const refusal = createTargetRefusal("MemoryManager");
  if (settings.policy === "None") {
    const saved = await readState(host.fs, rootDir, log, signal);
    if (saved) refusal.check(() => checkPolicy(saved, "None"));
    return undefined;
  }
  const [saved, topology] = await Promise.all([
    readState(host.fs, rootDir, log, signal),
    refusal.read(readMemoryTopology(host, signal)),
  ]);
  return refusal.check(() => {
    const idle = idleMachine(topology, systemReservedOf(settings, topology));
    return saved ? restoredState(idle, saved) : { machine: idle, assigned: new Map() };
  });
}

/** Describes a target's memory in a sentence. */
export function describeMemory({ machine }: MemoryState): string {
  const nodes = [...machine].map(([id, { tables }]) => {
    const { allocatable = 0, systemReserved = 0, reserved = 0 } = tables.get("memory") ?? {};
    const [all, system, ofPods] = [allocatable, systemReserved, reserved].map((bytes) => (bytes / 2 ** 30).toFixed(1));
    return `NUMA node ${id}: ${all} GiB for pods, of which Guaranteed ones have ${ofPods} GiB; ${system} GiB reserved`;
  });
  return nodes.join("; ");
}
