import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { readCgroups } from "../../../src/host/cgroup-readings.ts";
import { groupUsage } from "../../../src/host/cgroup-usage.ts";
import { parseNetDev } from "../../../src/host/net-dev.ts";
import type { Host } from "../../../src/seams/host.ts";

const id = (digit: string) => digit.repeat(64);
const { signal } = new AbortController();

/** This machine's shell, with these files in place of cgroups. */
function shellWith(files: Readonly<Record<string, string>>): Pick<Host, "run"> & Disposable {
  const root = mkdtempSync(join(tmpdir(), "cgroups-"));
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  }
  return {
    run: (argv, { stdin = "" } = {}) =>
      new Promise((resolve) => {
        const [file = "", ...args] = argv.map((arg) => arg.replaceAll("/sys/fs/cgroup", root));
        const child = execFile(file, args, (error, stdout, stderr) =>
          resolve({ code: error ? 1 : 0, stdout, stderr, truncated: false }),
        );
        child.stdin?.end(stdin);
      }),
    [Symbol.dispose]: () => rmSync(root, { recursive: true }),
  };
}

const pod = "/kubepods/burstable/pod1";

test("v1: reads the usage of a pod, its containers and its network with one command", async () => {
  const main = `memory${pod}/${id("a")}`;
  using host = shellWith({
    [`memory${pod}/memory.usage_in_bytes`]: "5000000\n",
    [`memory${pod}/memory.stat`]: "cache 7\ntotal_cache 4000\ntotal_rss 3000\ntotal_inactive_file 1000000\n",
    [`memory${pod}/memory.limit_in_bytes`]: "9223372036854771712\n",
    [`${main}/memory.usage_in_bytes`]: "200\n",
    [`${main}/memory.stat`]: "pgfault 3\ntotal_inactive_file 300\ntotal_pgfault 5\n",
    [`${main}/memory.limit_in_bytes`]: "80000000\n",
    [`${main}/memory.memsw.limit_in_bytes`]: "90000000\n",
    [`${main}/memory.soft_limit_in_bytes`]: "9223372036854771712\n",
    [`${main}/memory.oom_control`]: "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
    [`${main}/cgroup.procs`]: "11\n12\n",
    [`memory${pod}/${id("b")}/cgroup.procs`]: `${process.pid}\n`,
    [`memory${pod}/${id("b")}/memory.usage_in_bytes`]: "1\n",
    [`cpuacct${pod}/cpuacct.usage`]: "5000000000\n",
    [`cpuacct${pod}/${id("a")}/cpuacct.usage`]: "3000000000\n",
    [`cpuacct${pod}/${id("a")}/cpuacct.stat`]: "user 100\nsystem 50\n",
    [`cpu${pod}/${id("a")}/cpu.cfs_quota_us`]: "50000\n",
    [`cpu${pod}/${id("a")}/cpu.cfs_period_us`]: "100000\n",
    [`cpu${pod}/${id("a")}/cpu.shares`]: "102\n",
    [`cpu${pod}/${id("a")}/cpu.stat`]: "nr_periods 9\nnr_throttled 4\nthrottled_time 7000000000\n",
    [`blkio${pod}/${id("a")}/blkio.throttle.io_service_bytes_recursive`]:
      "8:0 Read 4096\n8:0 Write 10\n8:0 Sync 4106\n8:0 Async 0\n8:0 Discard 0\n8:0 Total 4106\nTotal 4106\n",
    [`blkio${pod}/${id("a")}/blkio.throttle.io_serviced_recursive`]: "8:0 Read 1\n8:0 Write 2\nTotal 3\n",
    [`pids${pod}/${id("a")}/pids.current`]: "6\n",
    [`pids${pod}/${id("a")}/pids.max`]: "max\n",
  });
  const containerIds = [id("a"), id("b")];
  const wanted = [{ path: pod, containerIds, networkOf: id("b") }, { path: "/kubepods/podNone" }];
  const { groups, proc } = await readCgroups(host, 1, wanted, signal);
  assert.deepEqual([...groups.keys()].sort(), [pod, `${pod}/${id("a")}`, `${pod}/${id("b")}`]);

  const { memory } = groupUsage(groups.get(pod) ?? new Map(), 1);
  assert.deepEqual([memory?.usage, memory?.workingSet, memory?.rss, memory?.cache], [5_000_000, 4_000_000, 3000, 4000]);
  assert.equal(memory?.limit, undefined, "the kernel's maximum means no limit");
  assert.deepEqual(memory?.swap, { usage: 0, limit: 0 }, "a kernel without swap accounting");

  const used = groupUsage(groups.get(`${pod}/${id("a")}`) ?? new Map(), 1);
  assert.deepEqual(used.cpu, {
    usageNs: 3e9,
    userNs: 1e9,
    systemNs: 5e8,
    shares: 102,
    periodUs: 100_000,
    quotaUs: 50_000,
    periods: 9,
    throttledPeriods: 4,
    throttledNs: 7e9,
  });
  assert.deepEqual(used.memory, {
    usage: 200,
    workingSet: 0,
    inactiveFile: 300,
    limit: 80_000_000,
    swapLimit: 10_000_000,
    swap: { usage: 0, limit: 90_000_000 },
    pageFaults: 3,
    oomKills: 2,
  });
  const bytes = { Read: 4096, Write: 10, Sync: 4106, Async: 0, Discard: 0, Total: 4106 };
  assert.deepEqual(used.io, { devices: [{ device: "8:0", bytes, requests: { Read: 1, Write: 2 } }] });
  assert.deepEqual([used.processes, used.threads, used.maxThreads], [2, 6, undefined]);
  assert.ok(proc.get(`/proc/${process.pid}/net/dev`)?.includes("Receive"), "the network of the pod's process");
  assert.ok(proc.get("/proc/meminfo")?.includes("MemTotal"));
});

test("v2 with systemd: finds scopes by container ID, except those of conmon", async () => {
  const slice = "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice";
  const scope = `${slice}/cri-containerd-${id("c")}.scope`;
  const pressure =
    "some avg10=1.50 avg60=0.20 avg300=0.10 total=1500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
  using host = shellWith({
    [`${scope}/cpu.stat`]: "usage_usec 3000\nuser_usec 2000\nsystem_usec 1000\nnr_periods 0\n",
    [`${scope}/cpu.max`]: "max 100000\n",
    [`${scope}/cpu.weight`]: "1\n",
    [`${scope}/cpu.pressure`]: pressure,
    [`${scope}/memory.current`]: "5000\n",
    [`${scope}/memory.stat`]: "anon 1000\nfile 2000\nkernel 700\ninactive_file 500\npgfault 4\n",
    [`${scope}/memory.max`]: "max\n",
    [`${scope}/memory.min`]: "2048\n",
    [`${scope}/memory.low`]: "4096\n",
    [`${scope}/memory.events`]: "low 0\nmax 3\noom_kill 1\n",
    [`${scope}/memory.swap.current`]: "0\n",
    [`${scope}/memory.swap.max`]: "4096\n",
    [`${scope}/io.stat`]: "8:16 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6\n",
    [`${slice}/cgroup.procs`]: "",
    [`${slice}/memory.current`]: "6000\n",
    [`${slice}/memory.events`]: "oom_kill 1\n",
    [`${slice}/memory.events.local`]: "oom_kill 0\n",
    [`${slice}/crio-conmon-${id("c")}.scope/memory.current`]: "9\n",
    "cpu.stat": "usage_usec 70\n",
    "cgroup.procs": "2\n3\n",
  });
  const wanted = [{ path: "/" }, { path: slice, containerIds: [id("c")] }];
  const { groups } = await readCgroups(host, 2, wanted, signal);
  assert.deepEqual([...groups.keys()].sort(), ["/", scope, slice].sort());
  const whole = groupUsage(groups.get(slice) ?? new Map(), 2);
  assert.equal(whole.memory?.oomKills, 0, "OOM kills in a container do not count for the pod");
  assert.deepEqual(groupUsage(groups.get("/") ?? new Map(), 2), { cpu: { usageNs: 70_000 }, processes: 2 });
  assert.deepEqual(groupUsage(groups.get(scope) ?? new Map(), 2), {
    cpu: {
      usageNs: 3e6,
      userNs: 2e6,
      systemNs: 1e6,
      shares: 2,
      periodUs: 100_000,
      periods: 0,
      pressure: {
        some: { total: 1_500_000, avg10: 1.5, avg60: 0.2, avg300: 0.1 },
        full: { total: 7, avg10: 0, avg60: 0, avg300: 0 },
      },
    },
    memory: {
      usage: 5000,
      workingSet: 4500,
      rss: 1000,
      cache: 2000,
      inactiveFile: 500,
      kernel: 0,
      failures: 0,
      reservation: 2048,
      swapLimit: 4096,
      swap: { usage: 0, limit: 4096 },
      pageFaults: 4,
      oomKills: 1,
    },
    io: { devices: [{ device: "8:16", bytes: { Read: 1, Write: 2 }, requests: { Read: 3, Write: 4 } }] },
  });
});

test("v2 with CRI-O: finds cgroups named crio-ID, crun's processes, and the network of a pod whose sandbox has no process", async () => {
  const dir = `${pod}/crio-${id("c")}`;
  using host = shellWith({
    [`${pod}/crio-${id("b")}/cgroup.procs`]: "",
    [`${dir}/memory.current`]: "5000\n",
    [`${dir}/cgroup.procs`]: "",
    [`${dir}/container/memory.current`]: "4000\n",
    [`${dir}/container/cgroup.procs`]: `${process.pid}\n`,
    [`${pod}/crio-conmon-${id("c")}/cgroup.procs`]: "1\n",
  });
  const wanted = [{ path: pod, networkOf: id("b"), containerIds: [id("c"), id("b")] }];
  const { groups, proc } = await readCgroups(host, 2, wanted, signal);
  assert.deepEqual([...groups.keys()].sort(), [`${pod}/crio-${id("b")}`, dir].sort());
  assert.deepEqual(Object.fromEntries(groups.get(dir) ?? []), {
    "memory.current": "5000",
    "cgroup.procs": `${process.pid}`,
  });
  assert.ok(proc.has(`/proc/${process.pid}/net/dev`), "the network of the container's process");
});

test("reports a machine whose cgroups cannot be read", async () => {
  const silent: Pick<Host, "run"> = { run: async () => ({ code: 1, stdout: "", stderr: "", truncated: false }) };
  await assert.rejects(readCgroups(silent, 1, [{ path: "/" }], signal), { code: "failed_precondition" });
  const endless: Pick<Host, "run"> = { run: async () => ({ code: 0, stdout: "", stderr: "", truncated: true }) };
  await assert.rejects(readCgroups(endless, 1, [{ path: "/" }], signal), { code: "resource_exhausted" });
});

test("lists a network's interfaces, except loopback and veth devices", () => {
  const table = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:    5       1    0    0    0     0          0         0     5       1    0    0    0     0       0          0
  eth0: 1000      10    1    2    0     0          0         0   500       5    3    4    0     0       0          0
veth12:    9       9    0    0    0     0          0         0     9       9    0    0    0     0       0          0
`;
  const eth0 = {
    name: "eth0",
    rx: { bytes: 1000, packets: 10, errors: 1, dropped: 2 },
    tx: { bytes: 500, packets: 5, errors: 3, dropped: 4 },
  };
  assert.deepEqual(parseNetDev(table), [eth0]);
});
