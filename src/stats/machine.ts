import type { HostFacts } from "../host/facts.ts";
import type { HostFs } from "../seams/host.ts";

export type Machine = Pick<
  HostFacts,
  "machineID" | "systemUUID" | "bootID" | "kernelVersion" | "osImage" | "cpus" | "memoryBytes" | "swapBytes"
> &
  Topology;

interface Topology {
  readonly cores: number;
  readonly sockets: number;
  /** CPU books of a mainframe; 0 elsewhere. */
  readonly books: number;
  readonly drawers: number;
}

/** @throws CodedError unavailable if the target is unreachable. */
export async function readMachine(
  fs: Pick<HostFs, "readFile">,
  facts: Omit<Machine, keyof Topology>,
  signal: AbortSignal,
): Promise<Machine> {
  const cpuinfo = (await fs.readFile("/proc/cpuinfo", { signal })).toString("utf8");
  return { ...facts, ...topology(cpuinfo, facts.cpus) };
}

/** Cores and sockets from /proc/cpuinfo; on architectures without them, each processor is a core of one socket. Cores of
 *  different sockets with the same number count once. (cAdvisor) */
function topology(cpuinfo: string, cpus: number): Topology {
  const count = (name: string) =>
    new Set([...cpuinfo.matchAll(new RegExp(`^${name}\\s*:\\s*(\\d+)$`, "gm"))].map(([, number]) => number)).size;
  return {
    cores: count("core id") || cpus,
    sockets: count("physical id") || 1,
    books: count("book id"),
    drawers: count("drawer id"),
  };
}
