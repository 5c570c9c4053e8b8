import assert from "node:assert/strict";
import { test } from "node:test";
import { defaultInterface, localIPv4, targetAddresses } from "../../../src/host/addresses.ts";
import { changedFacts, readBootTime, readFacts } from "../../../src/host/facts.ts";
import { readUsage } from "../../../src/host/usage.ts";
import { networksIn } from "../../../src/host/networks.ts";
import type { Host } from "../../../src/seams/host.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { type FakeHost, fakeHost } from "../../fakes/host.ts";
import { never } from "../../fakes/signals.ts";

const route = `Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
docker0	000011AC	00000000	0001	0	0	0	0000FFFF	0	0	0
eth1	00000000	0100A8C0	0003	0	0	100	00000000	0	0	0
eth1	0000A8C0	00000000	0001	0	0	100	00FFFFFF	0	0	0
`;
const trie = `Main:
  +-- 0.0.0.0/0 3 0 4
     |-- 127.0.0.1
        /32 host LOCAL
     |-- 169.254.7.7
        /32 host LOCAL
     |-- 172.17.0.1
        /32 host LOCAL
     |-- 172.17.255.255
        /32 link BROADCAST
     |-- 192.168.0.12
        /32 host LOCAL
     |-- 192.168.0.255
        /32 link BROADCAST
`;
const six = `00000000000000000000000000000001 01 80 10 80       lo
fe80000000000000021122fffe334455 02 40 20 80     eth1
20010db8000000000000000000000099 03 40 00 80  docker0
20010db8000000000000000000000012 02 40 00 80     eth1
`;

function machine(files: Readonly<Record<string, string>> = {}): FakeHost {
  const host = fakeHost({ clock: fakeClock() });
  const all = {
    "/proc/net/route": route,
    "/proc/net/fib_trie": trie,
    "/proc/net/if_inet6": six,
    "/proc/cpuinfo": "processor\t: 0\nmodel name\t: x\n\nprocessor\t: 1\nmodel name\t: x\n",
    "/proc/meminfo":
      "MemTotal:        4045432 kB\nMemFree:         1000000 kB\nInactive(file):   500000 kB\nSwapTotal:       1024 kB\n",
    "/proc/loadavg": "0.00 0.01 0.05 3/245 12345\n",
    "/proc/sys/kernel/pid_max": "4194304\n",
    "/proc/sys/kernel/threads-max": "192542\n",
    "/etc/machine-id": "abc123\n",
    "/etc/os-release": 'NAME="Debian"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n',
    "/sys/class/dmi/id/product_uuid": "UUID-1\n",
    ...files,
  };
  for (const [path, data] of Object.entries(all)) host.files.put(path, { data });
  host.program("uname", (_args, { stdout }) => {
    stdout.write("box 6.1.0-18-amd64 x86_64\n");
    return 0;
  });
  return host;
}

test("addresses: lists the default route's interface first and IPv4 before IPv6, without loopback, link-local or broadcast ones", async () => {
  assert.equal(defaultInterface(route), "eth1");
  assert.deepEqual(localIPv4(trie), ["172.17.0.1", "192.168.0.12"]);
  assert.deepEqual(await targetAddresses(machine(), never), [
    "192.168.0.12",
    "172.17.0.1",
    "2001:db8::12",
    "2001:db8::99",
  ]);
});

test("addresses of one interface: lists the primary address first if it is flagged as such", async () => {
  const virtual = `${trie}     |-- 192.168.0.5\n        /32 host LOCAL\n`.replace(
    "     |-- 192.168.0.12\n",
    "     |-- 192.168.0.10\n        /32 host LOCAL\n     |-- 192.168.0.12\n",
  );
  const host = machine({ "/proc/net/fib_trie": virtual });
  const four = async () => (await targetAddresses(host, never)).filter((address) => !address.includes(":"));
  assert.deepEqual(await four(), ["192.168.0.10", "192.168.0.12", "192.168.0.5", "172.17.0.1"]);
  host.program("ip", (args, { stdout }) => {
    assert.deepEqual(args, ["-o", "-4", "address", "show", "dev", "eth1"]);
    stdout.write("2: eth1    inet 192.168.0.12/24 brd 192.168.0.255 scope global eth1\\       valid_lft forever\n");
    stdout.write("2: eth1    inet 192.168.0.10/32 scope global eth1\\       valid_lft forever preferred_lft forever\n");
    return 0;
  });
  assert.deepEqual(await four(), ["192.168.0.12", "192.168.0.10", "192.168.0.5", "172.17.0.1"]);
});

test("addresses: works without IPv6 and without a default route", async () => {
  const host = machine({ "/proc/net/route": "Iface\tDestination\n" });
  await host.fs.apply([{ kind: "remove", path: "/proc/net/if_inet6" }]);
  assert.deepEqual(await targetAddresses(host, never), ["172.17.0.1", "192.168.0.12"]);
});

test("reads facts from the target's files, in Kubernetes' units and with Go's names for architecture and operating system", async () => {
  const host = machine({
    "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "3\n",
    "/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages": "0\n",
  });
  assert.deepEqual(await readFacts(host, never), {
    hostname: "box",
    machineID: "abc123",
    systemUUID: "UUID-1",
    bootID: "00000000-fake",
    kernelVersion: "6.1.0-18-amd64",
    osImage: "Debian GNU/Linux 12 (bookworm)",
    operatingSystem: "linux",
    architecture: "amd64",
    cpus: 2,
    cpuList: "0,1",
    memoryBytes: 4_045_432 * 1024,
    swapBytes: 1024 * 1024,
    hugepages: { "hugepages-2Mi": 6 * 2 ** 20, "hugepages-1Gi": 0 },
    addresses: ["192.168.0.12", "172.17.0.1", "2001:db8::12", "2001:db8::99"],
    maxPid: 192_542,
    cgroupVersion: 1,
    appArmor: false,
  });
  assert.equal(
    (await readFacts(machine({ "/sys/fs/cgroup/cgroup.controllers": "cpu memory\n" }), never)).cgroupVersion,
    2,
  );
});

test("AppArmor counts as enabled if it is active and its profiles are readable", async () => {
  const appArmor = async (enabled: string, profiles: boolean) => {
    const host = machine({ "/sys/module/apparmor/parameters/enabled": enabled });
    if (profiles)
      await host.fs.apply([{ kind: "mkdir", path: "/sys/kernel/security/apparmor", mode: 0o755, parents: true }]);
    return (await readFacts(host, never)).appArmor;
  };
  assert.deepEqual(
    [await appArmor("Y\n", true), await appArmor("N\n", true), await appArmor("Y\n", false)],
    [true, false, false],
  );
});

test("computes the boot time from the target's uptime and the local clock", async () => {
  const clock = fakeClock();
  assert.equal(await readBootTime(machine({ "/proc/uptime": "100.50 50.00\n" }), clock, never), clock.now() - 100_500);
  assert.equal(await readBootTime(machine(), clock, never), undefined);
});

test("usage: reads memory from the root cgroup minus inactive files, or from meminfo, and processes from loadavg", async () => {
  const v2 = machine({ "/sys/fs/cgroup/memory.stat": "anon 5000\nfile 900\nkernel 70\ninactive_file 600\n" });
  const unified = await readUsage(v2, never);
  assert.deepEqual(
    [unified.usageBytes, unified.workingSetBytes],
    [undefined, 5300],
    "memory of the kernel is not counted",
  );
  assert.deepEqual(await readUsage(machine(), never), {
    workingSetBytes: (4_045_432 - 1_000_000 - 500_000) * 1024,
    memoryBytes: 4_045_432 * 1024,
    processes: 245,
  });
  const v1 = machine({
    "/sys/fs/cgroup/memory/memory.usage_in_bytes": "1000\n",
    "/sys/fs/cgroup/memory/memory.stat": "cache 7\ntotal_inactive_file 300\n",
  });
  const { usageBytes, workingSetBytes } = await readUsage(v1, never);
  assert.deepEqual([usageBytes, workingSetBytes], [1000, 700]);
});

test("compares the facts that a Node reports, but not swap, boot time or secondary addresses", async () => {
  const before = await readFacts(machine(), never);
  assert.deepEqual(changedFacts(before, await readFacts(machine(), never)), []);
  const grown = { ...before, memoryBytes: before.memoryBytes * 2, cpus: 64, hugepages: { "hugepages-2Mi": 4 } };
  assert.deepEqual(changedFacts(before, grown), ["cpus", "memoryBytes", "hugepages"]);
  const [first = ""] = before.addresses;
  const elsewhere = { ...before, swapBytes: 1, bootID: "other", addresses: [first, "10.88.0.1"] };
  assert.deepEqual(changedFacts(before, elsewhere), []);
  assert.deepEqual(changedFacts(before, { ...before, addresses: ["10.88.0.1", first] }), ["address"]);
});

test("skips malformed lines of the kernel's address tables", async () => {
  const files = new Map([
    [
      "/proc/net/route",
      "Iface\tDestination\neth0\tzz\t01\t0003\t0\t0\t0\tff\neth0\t00000000\t0102A8C0\t3\t0\t0\t0\t00000000\n",
    ],
    ["/proc/net/fib_trie", "     |-- 192.168.0.12\n        /32 host LOCAL\n"],
    ["/proc/net/if_inet6", "fd00:xyz 02 40 00 80 eth0\nfd000000000000000000000000000001 02 40 00 80 eth0\n"],
  ]);
  const host = {
    fs: { readFile: async (path: string) => Buffer.from(files.get(path) ?? "") },
    run: async () => ({ code: 1, stdout: "", stderr: "", truncated: false }),
  } as unknown as Host;
  assert.deepEqual(await targetAddresses(host, never), ["192.168.0.12", "fd00::1"]);
  assert.deepEqual(networksIn("", "fd00:xyz 40 0 0 0 0 0 0 0 eth0\n"), []);
});
