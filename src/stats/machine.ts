import type { HostFacts } from "../host/facts.ts";
import type { HostFs } from "../seams/host.ts";

/** Properties of the machine. */
export type Machine = Pick<
  HostFacts,
  "machineID" | "systemUUID" | "bootID" | "kernelVersion" | "osImage" | "cpus" | "memoryBytes" | "swapBytes"
> &
  Topology;

interface Topology {
  readonly cores: number;
  readonly sockets: number;
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

/** Cores and sockets from /proc/cpuinfo; on architectures without them, each processor is a core of one socket. */
function topology(cpuinfo: string, cpus: number): Topology {
  const found = cpuinfo.split("\n\n").flatMap((processor) => {
    const socket = /^physical id\s*: (\d+)$/m.exec(processor)?.[1];
    const core = /^core id\s*: (\d+)$/m.exec(processor)?.[1];
    return socket === undefined || core === undefined ? [] : [{ socket, core: `${socket} ${core}` }];
  });
  if (found.length === 0) return { cores: cpus, sockets: 1 };
  return {
    cores: new Set(found.map(({ core }) => core)).size,
    sockets: new Set(found.map(({ socket }) => socket)).size,
  };
}
