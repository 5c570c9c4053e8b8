import { knownKeys } from "../../providers/ssh/connection/host-key.ts";
import { parseEntries, parseStat } from "../../providers/ssh/files/file-info.ts";
import { parseDescription, parseFileSystem } from "../../providers/ssh/files/files-without-sftp.ts";
import { runtimeEvent } from "../../providers/docker/events.ts";
import { groupUsage } from "../../src/host/cgroup-usage.ts";
import { decodeDeviceCheckpoint, encodeDeviceCheckpoint } from "../../src/devices/checkpoint.ts";
import { decodeClaimCheckpoint, encodeClaimCheckpoint } from "../../src/dra/checkpoint.ts";
import { defaultInterface, localIPv4, directSubnets } from "../../src/host/addresses.ts";
import { parseMeminfo } from "../../src/host/facts.ts";
import { parseMounts, parseMountSources } from "../../src/host/mounts.ts";
import { parseNetDev } from "../../src/host/net-dev.ts";
import { networksIn } from "../../src/host/networks.ts";
import { parseBoundedJson } from "../../src/lib/bounded-text.ts";
import { recordIn } from "../../src/lib/record.ts";
import { parseCriLine, parseDockerLine, parserFor } from "../../src/logs/output.ts";
import { createOomParser } from "../../src/node/oom-watcher.ts";
import { parseResolvConf } from "../../src/pod/dns.ts";
import { parseCpuState } from "../../src/cpus/state-file.ts";
import { parseTopology } from "../../src/cpus/topology.ts";
import { parseMemoryTopology } from "../../src/memory-manager/numa-memory.ts";
import { parseMemoryState } from "../../src/memory-manager/state-file.ts";
import { parseDockerConfig } from "../../src/runtime/images/docker-config.ts";
import { parseStatus } from "../../src/streams/exit-status.ts";
import { iscsiDiskOfId } from "../../src/volumes/persistent/iscsi-disk.ts";
import { iscsiRecordOf, withIscsiRecord } from "../../src/volumes/persistent/iscsi-record.ts";
import { iscsiSettingsOf } from "../../src/volumes/persistent/iscsiadm.ts";
import { parseSubordinateIds } from "../../src/user-namespaces/available-ids.ts";
import type { Target } from "./target.ts";
import { formatMappings, parseMappings } from "../../src/user-namespaces/pod-ids.ts";

function text(name: string, decode: (input: string) => unknown, ...samples: readonly string[]): Target {
  return {
    name,
    samples: samples.map((sample) => Buffer.from(sample)),
    decode: (input) => decode(input.toString()),
  };
}

const lines = (...of: readonly string[]) => `${of.join("\n")}\n`;
const iscsiDisk = {
  name: "v",
  portals: ["10.0.0.1:3260", "[fd00::1]:3260"],
  iqn: "iqn.2026-01.example:a",
  lun: 1,
  iface: "default",
  initiatorInterface: "default",
  initiatorName: "",
} as const;
const mountinfo = lines(
  "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,seclabel",
  "23 22 0:21 / /proc rw,nosuid shared:12 master:2 - proc proc rw",
  "90 22 0:52 /a\\040b /var/lib/kubelet/pods/x rw - tmpfs tmpfs rw,size=10240k",
);
const route = lines(
  "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT",
  "eth0\t00000000\t0102A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0",
  "eth0\t0002A8C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0",
);
const route6 = lines(
  "fd000000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001 eth0",
);
const fibTrie = lines("Main:", "  +-- 0.0.0.0/0 3 0 5", "     |-- 192.168.0.12", "        /32 host LOCAL");
const netDev = lines("Inter-|   Receive", " face |bytes", "  eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16");
const event =
  '{"Type":"container","Action":"die","Actor":{"ID":"c","Attributes":{"a":"b"}},"timeNano":1700000000000000000}';
const labels = { "io.kubernetes.pod.name": "p", list: [1, 2.5, true, null, '\\"ü'] };
const checkpoint = encodeDeviceCheckpoint({ allocations: [], registered: new Map([["a.b/c", ["d"]]]) });
const cgroup = {
  "cpu.stat": "usage_usec 1\nuser_usec 1\n",
  "memory.current": "4096\n",
  "memory.stat": "anon 1\nfile 2\ninactive_file 3\n",
  "io.stat": "8:0 rbytes=1 wbytes=2 rios=3 wios=4\n",
  "cpu.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
  "cgroup.procs": "1\n2\n",
};

export const textTargets: readonly Target[] = [
  text("mountinfo", (table) => [parseMounts(table), parseMountSources(table)], mountinfo),
  text("routes", (table) => [networksIn(table, table), defaultInterface(table), directSubnets(table)], route, route6),
  text("local addresses", localIPv4, fibTrie),
  text("traffic", parseNetDev, netDev),
  text("meminfo", parseMeminfo, lines("MemTotal:       16384 kB", "HugePages_Total:       0")),
  text(
    "kernel log",
    (log) => log.split("\n").map(createOomParser()),
    lines("a invoked oom-killer: x", "Killed process 12 (b)"),
  ),
  text("resolv.conf", parseResolvConf, lines("nameserver 10.0.0.1", "search a b", "options ndots:5")),
  text(
    "cgroup files",
    (all) => {
      const files = new Map(Object.entries(recordIn(all) ?? {}).map(([name, value]) => [name, String(value)]));
      return [groupUsage(files, 1), groupUsage(files, 2)];
    },
    JSON.stringify(cgroup),
  ),
  text("file information", parseStat, "81a4 0 0 12 345 2026-01-02 03:04:05.000000000 +0000\n"),
  text(
    "file opened by a shell",
    (output) => parseDescription("/f", Buffer.from(output)),
    "42:345 81a4 0 0 12 345 2026-01-02 03:04:05.000000000 +0000\n/f\n.\n",
  ),
  text("file system, by stat", (output) => parseFileSystem("/f", Buffer.from(output)), "4096 1000 500 400 64 32\n"),
  text("directory", (names) => parseEntries("/d", Buffer.from(names)), "fname\0dbelow\0llink\0"),
  text(
    "known hosts",
    (file) => knownKeys(file, "a.example", 22),
    lines(
      "a.example,10.0.0.1 ssh-ed25519 AAAA",
      "@cert-authority *.example ssh-rsa BBBB",
      "|1|c2FsdA==|aGFzaA== ssh-rsa C",
    ),
  ),
  text("Docker JSON", (json) => parseBoundedJson(Buffer.from(json)), event, JSON.stringify({ labels, more: [labels] })),
  text("Docker event", (json) => runtimeEvent(recordIn(json) ?? {}), event),
  text("checkpoint of devices", decodeDeviceCheckpoint, checkpoint),
  text(
    "interface of iscsiadm",
    iscsiSettingsOf,
    lines("# BEGIN RECORD", "iface.transport_name = tcp", "iface.mtu = 0"),
  ),
  text("directory of an iSCSI disk", iscsiDiskOfId, "iface-default/10.0.0.1:3260-iqn.2026-01.example:a-lun-1"),
  text("record of an iSCSI disk", (json) => withIscsiRecord(iscsiDisk, Buffer.from(json)), iscsiRecordOf(iscsiDisk)),
  text("ID mappings of a pod", parseMappings, formatMappings({ first: 65_536, length: 65_536 })),
  text("subordinate IDs", parseSubordinateIds, "0: kubelet 65536 7208960\n"),
  text("checkpoint of ResourceClaims", (input) => decodeClaimCheckpoint(Buffer.from(input)), encodeClaimCheckpoint([])),
  text(
    "CPU topology",
    (table) => parseTopology(table.split("\n")),
    lines(
      "cpu/online:0-1",
      "node/node0/cpulist:0-1",
      "cpu/cpu0/topology/core_id:0",
      "cpu/cpu0/topology/physical_package_id:0",
      "cpu/cpu0/cache/index3/level:3",
      "cpu/cpu0/cache/index3/id:0",
      "cpu/cpu0/cache/index3/shared_cpu_list:0-1",
    ),
  ),
  text(
    "state of the CPU manager",
    (json) => parseCpuState(json),
    '{"policyName":"static","defaultCpuSet":"0,4-7","entries":{"uid":{"main":"1-3"}},"checksum":1}',
  ),
  text(
    "memory of NUMA nodes",
    (table) => parseMemoryTopology(table.split("\n")),
    lines("node0/meminfo:Node 0 MemTotal: 4096 kB", "node0/hugepages/hugepages-2048kB/nr_hugepages:1"),
  ),
  text(
    "state of the memory manager",
    (json) => parseMemoryState(json),
    '{"policyName":"Static","machineState":{"0":{"numberOfAssignments":1,"memoryMap":{"memory":{"total":9,"systemReserved":1,"allocatable":8,"reserved":4,"free":4}},"cells":[0]}},"entries":{"uid":{"main":[{"numaAffinity":[0],"type":"memory","size":4}]}},"checksum":1}',
  ),
  text("registry logins", (json) => parseDockerConfig(json, "config.json"), '{"auths":{"a.example":{"auth":"YTpi"}}}'),
  text(
    "exit status",
    parseStatus,
    '{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"message":"3"}]}}',
  ),
  text(
    "log line",
    (line) => [parserFor(Buffer.from(line)), parseCriLine(Buffer.from(line)), parseDockerLine(Buffer.from(line))],
    "2026-01-02T03:04:05.678901234Z stdout F a line\n",
    '{"log":"a line\\n","stream":"stdout","time":"2026-01-02T03:04:05.678901234Z"}\n',
  ),
];
