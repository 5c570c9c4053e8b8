import { toMilliseconds } from "../lib/nanoseconds.ts";
import type * as cri from "../gen/cri.ts";
import type { CgroupReadings } from "../host/cgroup-readings.ts";
import { type GroupUsage, groupUsage, type MemoryUsage, pressureOf } from "../host/cgroup-usage.ts";
import { bootTimeOf, parseMeminfo } from "../host/facts.ts";
import { type InterfaceTraffic, parseNetDev } from "../host/net-dev.ts";
import type { RunningPod } from "./running-pods.ts";
import type { RuntimeUsage } from "./runtime-usage.ts";
import type { ContainerSample, Measured, PodSample, Sample } from "./sample.ts";

/** Recent CPU usage in nanocores. @param usageNs total CPU time. */
export type Rate = (key: string, usageNs: number) => number | undefined;

export interface SampleInput {
  readonly readings: CgroupReadings;
  readonly version: 1 | 2;
  readonly running: readonly RunningPod[];
  readonly podPath: (pod: RunningPod) => string | undefined;
  /** Paths of cgroups by container and sandbox ID. */
  readonly containers: ReadonlyMap<string, string>;
  /** Paths of the cgroups of all pods and of QoS classes. */
  readonly shared: readonly string[];
  /** The runtime's statistics, if requested. */
  readonly runtimeUsage: RuntimeUsage;
  readonly rate: Rate;
  /** Converts a time of the target's clock to graftlet's, milliseconds. */
  readonly toOurs: (targetTime: number) => number;
}

/** Converts a node's cgroup files to a sample. Pure, except for the rates. */
export function sampleOf(input: SampleInput): Omit<Sample, "at" | "bootedAt" | "devices"> {
  const { readings, running, shared } = input;
  const groups = shared.flatMap((path) => {
    const measured = groupAt(input, path);
    return measured ? [[path, measured] as const] : [];
  });
  return {
    node: withCpuRate(input, "/", nodeUsage(input)),
    network: parseNetDev(readings.proc.get("/proc/net/dev") ?? ""),
    processes: Number(/\/(\d+) /.exec(readings.proc.get("/proc/loadavg") ?? "")?.[1] ?? 0),
    groups: new Map(groups),
    pods: running.map((pod) => podSample(input, pod)),
  };
}

/** Boot time of the target. @param at the current time. */
export function bootTime({ proc }: CgroupReadings, at: number): number {
  return bootTimeOf(proc.get("/proc/uptime") ?? "0", at);
}

/** Paths of block devices by `major:minor`. @see https://docs.kernel.org/admin-guide/iostats.html */
export function deviceNames({ proc }: CgroupReadings): ReadonlyMap<string, string> {
  const lines = (proc.get("/proc/diskstats") ?? "").matchAll(/^\s*(\d+)\s+(\d+)\s+(\S+)/gm);
  return new Map([...lines].map(([, major, minor, name]) => [`${major}:${minor}`, `/dev/${name}`]));
}

function withCpuRate({ rate }: SampleInput, key: string, usage: GroupUsage): Measured {
  const nanoCores = usage.cpu && rate(key, usage.cpu.usageNs);
  return { ...usage, ...(nanoCores !== undefined && { nanoCores }) };
}

function groupAt(input: SampleInput, path: string | undefined): Measured | undefined {
  const files = path === undefined ? undefined : input.readings.groups.get(path);
  // The CPU rate of a cgroup's first measurement is 0. (cAdvisor)
  return files && path !== undefined
    ? { nanoCores: 0, ...withCpuRate(input, path, groupUsage(files, input.version)) }
    : undefined;
}

/** Usage of the root cgroup. It has the machine's limits and swap, and its pressure is in /proc/pressure. */
function nodeUsage({ readings: { groups, proc }, version }: SampleInput): GroupUsage {
  const { cpu, memory, io, processes } = groupUsage(groups.get("/") ?? new Map<string, string>(), version);
  const info = parseMeminfo(proc.get("/proc/meminfo") ?? "");
  const all: MemoryUsage = {
    ...(memory ?? machineMemory(info)),
    swap: { usage: (info["SwapTotal"] ?? 0) - (info["SwapFree"] ?? 0), limit: info["SwapTotal"] ?? 0 },
    limit: info["MemTotal"] ?? 0,
  };
  const pressure = {
    cpu: pressureOf(proc.get("/proc/pressure/cpu")),
    memory: pressureOf(proc.get("/proc/pressure/memory")),
    io: pressureOf(proc.get("/proc/pressure/io")),
  };
  return {
    ...(cpu && { cpu: { ...cpu, ...(pressure.cpu && { pressure: pressure.cpu }) } }),
    memory: { ...all, ...(pressure.memory && { pressure: pressure.memory }) },
    io: { devices: io?.devices ?? [], ...(pressure.io && { pressure: pressure.io }) },
    // The root has no pids controller; with v2 its processes are counted instead. (runc)
    ...(processes !== undefined && { processes, threads: version === 2 ? processes : 0 }),
  };
}

/** Memory of a machine whose root cgroup has no memory statistics. */
function machineMemory(info: Readonly<Record<string, number>>): MemoryUsage {
  const usage = (info["MemTotal"] ?? 0) - (info["MemFree"] ?? 0);
  const inactiveFile = info["Inactive(file)"] ?? 0;
  return {
    usage,
    workingSet: Math.max(0, usage - inactiveFile),
    rss: info["AnonPages"] ?? 0,
    cache: info["Cached"] ?? 0,
    mappedFile: info["Mapped"] ?? 0,
    activeFile: info["Active(file)"] ?? 0,
    inactiveFile,
    pageFaults: 0,
    majorPageFaults: 0,
  };
}

function podSample(input: SampleInput, pod: RunningPod): PodSample {
  const { uid, name, namespace, sandbox, containers, onHostNetwork } = pod;
  const { runtimeUsage, toOurs } = input;
  const path = input.podPath(pod);
  const reported = runtimeUsage.pods.get(uid);
  const measured = groupAt(input, path) ?? (reported && withCpuRate(input, uid, reported));
  const network = onHostNetwork ? undefined : (networkOf(input, pod) ?? runtimeUsage.networks.get(uid));
  const created = sandbox?.createdAt ?? containers.at(-1)?.createdAt ?? 0n;
  return {
    uid,
    name,
    namespace,
    startedAt: toOurs(toMilliseconds(created)),
    ...(path !== undefined && { path }),
    ...(measured && { measured }),
    ...(network && { network }),
    containers: containers.map((container) => containerSample(input, container)),
    ...(sandbox && { sandbox: sandboxSample(input, sandbox) }),
  };
}

function containerSample(input: SampleInput, status: cri.ContainerStatus): ContainerSample {
  const { id, metadata, image, createdAt, startedAt } = status;
  const name = metadata?.name ?? "";
  return {
    id,
    name,
    image: image?.image ?? "",
    ...cgroupUsage(input, id),
    createdAt: input.toOurs(toMilliseconds(createdAt)),
    startedAt: input.toOurs(toMilliseconds(startedAt)),
  };
}

function sandboxSample(input: SampleInput, status: cri.PodSandboxStatus): ContainerSample {
  const { id } = status;
  const createdAt = input.toOurs(toMilliseconds(status.createdAt));
  return { id, name: "", image: "", ...cgroupUsage(input, id), createdAt, startedAt: createdAt };
}

function cgroupUsage(input: SampleInput, id: string): Pick<ContainerSample, "path" | "measured"> {
  const path = input.containers.get(id);
  const reported = input.runtimeUsage.containers.get(id);
  const measured = groupAt(input, path) ?? (reported && withCpuRate(input, id, reported));
  return { ...(path !== undefined && { path }), ...(measured && { measured }) };
}

/** Traffic of the interfaces in the network namespace of a pod: that of the sandbox's process or, as CRI-O's sandboxes have none, of a
 *  container's. */
function networkOf(
  { readings: { groups, proc }, containers: paths }: SampleInput,
  { sandbox, containers }: RunningPod,
): readonly InterfaceTraffic[] | undefined {
  const ids = [...(sandbox ? [sandbox] : []), ...containers].map(({ id }) => id);
  const processes = ids.flatMap(
    (id) =>
      groups
        .get(paths.get(id) ?? "")
        ?.get("cgroup.procs")
        ?.split("\n") ?? [],
  );
  const tables = processes.map((pid) => proc.get(`/proc/${pid}/net/dev`));
  const table = tables.find((text) => text !== undefined);
  return table === undefined ? undefined : parseNetDev(table);
}
