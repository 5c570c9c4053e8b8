import type { FakeHost } from "../../fakes/host.ts";
import { fakeHost } from "../../fakes/host.ts";
import { type FakeClock, fakeClock } from "../../fakes/clock.ts";
import { type TestPod, aContainer, aPod, aSandbox, aStatus, observe } from "../../fakes/pods.ts";
import {
  ContainerState,
  ImageFsInfoResponse,
  ImageSpec,
  NamespaceMode,
  type ContainerStats,
  type PodSandboxStats,
} from "../../../src/gen/cri.ts";
import type { HostFacts } from "../../../src/host/facts.ts";
import { createDiskMeter } from "../../../src/host/disk-meter.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { createLogger } from "../../../src/lib/log.ts";
import type { RuntimePod } from "../../../src/pipeline.ts";
import { createNodeStats } from "../../../src/stats/node-stats.ts";
import { never } from "../../fakes/signals.ts";

export const rootDir = "/var/lib/kubelet";
export const signal = never;
const mebibyte = 2 ** 20;

export const facts: HostFacts = {
  hostname: "node",
  machineID: "machine",
  systemUUID: "system",
  bootID: "boot",
  kernelVersion: "6.1",
  osImage: "Debian",
  operatingSystem: "linux",
  architecture: "amd64",
  cpus: 4,
  cpuList: "0,1,2,3",
  memoryBytes: 1000 * mebibyte,
  swapBytes: 0,
  hugepages: {},
  addresses: [],
  maxPid: 4000,
  cgroupVersion: 2,
  appArmor: false,
};

/** Contents of the target's files; changed by tests between two samples. */
export type Files = Record<string, string>;

/** v2 cgroups of the machine and of a pod `p` with two containers, one of which has ended. */
export function targetFiles(): Files {
  const pod = "./kubepods/burstable/poduid-1";
  const usage = (cpuUs: number, bytes: number) => ({
    "cpu.stat": `usage_usec ${cpuUs}\nuser_usec ${cpuUs}\nsystem_usec 0\n`,
    "memory.current": String(bytes),
    "memory.stat": "anon 5\ninactive_file 100\n",
    "memory.max": String(80 * mebibyte),
    "io.stat": "8:0 rbytes=4096 wbytes=0 rios=1 wios=0",
  });
  const at = (path: string, files: Files) => Object.entries(files).map(([name, text]) => [`${path}/${name}`, text]);
  return Object.fromEntries([
    ["/proc/uptime", "100.00 50.00"],
    ["/proc/meminfo", "MemTotal: 1000 kB\nMemFree: 400 kB\nInactive(file): 100 kB\nSwapTotal: 50 kB\nSwapFree: 40 kB"],
    ["/proc/loadavg", "0.1 0.2 0.3 2/77 999"],
    ["/proc/diskstats", "   8       0 sda 1 2 3"],
    ["/proc/net/dev", "  eth0: 9 1 0 0 0 0 0 0 8 1 0 0 0 0 0 0"],
    ["/proc/55/net/dev", "  eth0: 70 7 1 0 0 0 0 0 60 6 2 0 0 0 0 0\n  net1: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0"],
    [
      "/proc/pressure/io",
      "some avg10=1.00 avg60=0.00 avg300=0.00 total=2000000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0",
    ],
    ["./cpu.stat", "usage_usec 90000000"],
    ...at("./kubepods", usage(5_000_000, 4000)),
    ...at(pod, usage(3_000_000, 3000)),
    ...at(`${pod}/sandbox`, { ...usage(1000, 10), "cgroup.procs": "55" }),
    ...at(`${pod}/main`, { ...usage(2_000_000, 2100), "cgroup.procs": "56\n57", "pids.current": "4" }),
  ]) as Files;
}

export interface Rig {
  readonly clock: FakeClock;
  readonly host: FakeHost;
  readonly stats: ReturnType<typeof createNodeStats>;
  files: Files;
  pods: readonly RuntimePod[];
  /** The runtime's stats of containers and pods; undefined if it measures no pods. */
  containerStats: readonly ContainerStats[];
  podStats: readonly PodSandboxStats[] | undefined;
  readonly calls: string[];
  readonly logged: () => string;
  /** The runtime stops answering. */
  runtimeFails: boolean;
}

export const pod: TestPod = aPod({
  containers: [aContainer("main"), aContainer("gone")],
  volumes: [
    { name: "scratch", emptyDir: {} },
    { name: "memory", emptyDir: { medium: "Memory" } },
    { name: "huge", emptyDir: { medium: "HugePages-2Mi" } },
    { name: "host", hostPath: { path: "/" } },
  ],
});

/** The pod as the runtime shows it. */
export function running(onHostNetwork = false): RuntimePod {
  const network = onHostNetwork ? NamespaceMode.NODE : NamespaceMode.POD;
  const second = 1_000_000_000n;
  return observe(
    [
      aSandbox({
        id: "sandbox",
        createdAt: 50n * second,
        linux: { namespaces: { options: { network, pid: 0, ipc: 0, targetId: "", usernsOptions: undefined } } },
      }),
    ],
    [
      aStatus(aContainer("main"), ContainerState.CONTAINER_EXITED, { id: "main-0" }),
      aStatus(aContainer("main"), ContainerState.CONTAINER_RUNNING, {
        id: "main",
        createdAt: 58n * second,
        startedAt: 60n * second,
        image: ImageSpec.fromPartial({ image: "busybox:1" }),
      }),
      aStatus(aContainer("gone"), ContainerState.CONTAINER_EXITED, { id: "gone" }),
    ],
  );
}

/** A node's stats on a target with these files and file sizes (MiB, by the end of the path). */
export async function rigged(sizes: Readonly<Record<string, number>> = {}, diskPeriodMs = 60_000): Promise<Rig> {
  const clock = fakeClock();
  const host = fakeHost({ clock });
  const volumes = ["scratch", "memory", "huge", "host"].map(
    (name) => [name, `${rootDir}/pods/uid-1/volumes/${name}`] as const,
  );
  await host.fs.apply(
    [rootDir, "/images", "/var/log/pods", ...volumes.map(([, path]) => path)].map((path) => ({
      kind: "mkdir",
      path,
      parents: true,
    })),
  );
  host.files.put("/proc/cpuinfo", {
    data: ["0 0", "0 1", "1 0", "1 1"].map((of) => `physical id\t: ${of[0]}\ncore id\t\t: ${of[2]}\n`).join("\n"),
  });
  let logged = "";
  const calls: string[] = [];
  host.program("sh", (_args, { stdout }) => {
    calls.push("cgroups");
    for (const [name, text] of Object.entries(rig.files)) stdout.write(`==> ${name} <==\n${text}\n\n`);
    return 0;
  });
  host.program("du", (args, { stdout }) => {
    calls.push("du");
    for (const path of args.filter((arg) => arg.startsWith("/"))) {
      const [, size] = Object.entries(sizes).find(([end]) => path.endsWith(end)) ?? [];
      if (size !== undefined)
        stdout.write(args.includes("--inodes") ? `${size}\t${path}\n` : `${size * 1024}\t${path}\n`);
    }
    return 0;
  });
  host.program("df", (args, { stdout }) => {
    stdout.write(`Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev${args[1]} 1 1 1 1% /\n`);
    return 0;
  });
  const rig: Rig = {
    clock,
    host,
    files: targetFiles(),
    pods: [running()],
    containerStats: [],
    podStats: undefined,
    runtimeFails: false,
    calls,
    logged: () => logged,
    stats: createNodeStats({
      host,
      healthEvents: undefined,
      disk: createDiskMeter({ host, clock }),
      runtime: {
        containerStats: async () => undefined,
        listContainerStats: async () => (calls.push("listContainerStats"), rig.containerStats),
        async listPodSandboxStats() {
          calls.push("listPodSandboxStats");
          if (rig.runtimeFails) throw new CodedError("unavailable", "the runtime is away");
          if (!rig.podStats) throw new CodedError("unimplemented", "no");
          return rig.podStats;
        },
        imageFsInfo: async () =>
          ImageFsInfoResponse.fromPartial({
            imageFilesystems: [{ fsId: { mountpoint: "/images" }, usedBytes: { value: 77n } }],
          }),
      },
      podCache: { get: () => undefined, list: () => rig.pods },
      layout: async () => ({ driver: "cgroupfs", root: "", perQos: true }),
      cgroupVersion: 2,
      facts,
      nodeName: "node",
      desired: { get: (uid) => (uid === "uid-1" ? pod : undefined) },
      volumes: { mounted: () => new Map(volumes.map(([name, hostPath]) => [name, { hostPath, readOnly: false }])) },
      driverVolumeStats: async () => undefined,
      rootDir,
      podLogsDir: "/var/log/pods",
      diskPeriodMs,
      clock,
      targetClock: { toOurs: (time) => time },
      log: createLogger(0, { write: (line: string) => void (logged += line) }),
    }),
  };
  return rig;
}

/** The result of a request while time advances. */
export async function meanwhile<T>({ clock }: Rig, asked: Promise<T>): Promise<T> {
  await clock.advance(1_000);
  return asked;
}
