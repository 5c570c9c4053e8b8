import { posix } from "node:path";
import { CgroupDriver } from "../gen/cri.ts";
import { missingControllers } from "../host/cgroups.ts";
import { exists } from "../host/exists.ts";
import { type HostFacts, readFacts } from "../host/facts.ts";
import { isInMemory, mountOf } from "../host/mounts.ts";
import { readOwnershipRecord } from "../host/ownership-record.ts";
import type { Clock } from "../lib/clock.ts";
import { ignoreCode, messageOf, ignoreNotFound } from "../lib/errors.ts";
import { activeFirewalls } from "../service-tunnel/firewall-remedy.ts";
import { predictNetwork } from "../service-tunnel/network-mode.ts";
import { preflightFailures } from "../service-tunnel/preflight.ts";
import { checkTargetRequirements, checkCgroupControllers, checkTargetAddress } from "../node/target-requirements.ts";
import { parseResolvConf } from "../pod/dns.ts";
import type { Target } from "../seams/provider.ts";
import { type Check, type Finding, type CheckResult, examine, failure, ok, warning } from "./findings.ts";
import { command } from "../seams/command.ts";

export interface TargetExamination {
  readonly target: Target;
  readonly nodeName: string;
  readonly rootDir: string;
  readonly kubelet: {
    readonly failSwapOn: boolean;
    readonly failCgroupV1: boolean;
    readonly cgroupDriver: string;
    readonly resolvConf: string;
  };
  /** Checks for another agent on the target. @throws its error. */
  readonly refuseOtherAgent: (signal: AbortSignal) => Promise<void>;
  /** Describes the CPUs that containers can get exclusively; undefined with CPU manager policy none. @throws its error. */
  readonly exclusiveCpus?: ((signal: AbortSignal) => Promise<string>) | undefined;
  /** Describes the NUMA nodes that resources are aligned to; undefined with topology manager policy none. @throws its error. */
  readonly numaNodes?: ((signal: AbortSignal) => Promise<string>) | undefined;
  /** Describes the memory of NUMA nodes; undefined with memory manager policy None. @throws its error. */
  readonly numaMemory?: ((signal: AbortSignal) => Promise<string>) | undefined;
  readonly clock: Clock;
}

const checkTimeoutMs = 20_000;

/** Checks a target without changing it. If the target is unreachable, there is no other finding. */
export async function examineTarget(of: TargetExamination, signal: AbortSignal): Promise<readonly Finding[]> {
  const bounded = ({ name, look }: Check): Check => ({
    name,
    look: (until) => look(of.clock.within(checkTimeoutMs, until)),
  });
  const reached = await examine([bounded({ name: "link", look: (until) => link(of, until) })], signal);
  if (reached.some(({ level }) => level === "failure")) return reached;
  let facts: HostFacts | undefined;
  const factsOf = async (until: AbortSignal) => (facts ??= await readFacts(of.target.host, until));
  const checks: readonly Check[] = [
    { name: "rights", look: (until) => rights(of, until) },
    { name: "machine", look: async (until) => machine(await factsOf(until)) },
    { name: "kernel", look: async (until) => kernel(of, await factsOf(until), until) },
    { name: "swap", look: async (until) => swap(of, await factsOf(until)) },
    { name: "cgroups", look: async (until) => cgroups(of, await factsOf(until), until) },
    ...resourceManagerChecks(of),
    { name: "runtime", look: (until) => runtime(of, until) },
    { name: "disk", look: (until) => disk(of, until) },
    { name: "clock", look: (until) => clockOffset(of, until) },
    { name: "DNS", look: (until) => resolver(of, until) },
    { name: "other agents", look: (until) => agents(of, until) },
    ...(of.target.network ? [{ name: "pods' network", look: (until: AbortSignal) => network(of, until) }] : []),
  ];
  return [...reached, ...(await examine(checks.map(bounded), signal))];
}

async function link(
  { target: { host, link: remote }, clock }: TargetExamination,
  signal: AbortSignal,
): Promise<CheckResult> {
  const began = clock.monotonic();
  try {
    await host.run(command("true"), { signal });
  } catch (error) {
    const trouble = remote?.trouble();
    return trouble ? failure(trouble.message, trouble.reason) : failure(messageOf(error));
  }
  if (!remote) return ok("the target is this machine");
  const connected = clock.monotonic();
  await host.run(command("true"), { signal });
  const [login, answer] = [connected - began, clock.monotonic() - connected].map(Math.round);
  return ok(`host key, login and shell work; connected in ${login} ms, a command takes ${answer} ms`);
}

async function rights(
  { target }: TargetExamination,
  signal: AbortSignal,
): Promise<CheckResult | readonly CheckResult[]> {
  const missing = await target.missingPrivileges?.(signal);
  if (!missing || missing.messages.length === 0) return ok("all privileges that a node needs");
  return missing.messages.map((sentence, index) =>
    warning(sentence, missing.sudoNeedsPassword && index === 0 ? "SudoNeedsPassword" : "InsufficientPrivileges"),
  );
}

function machine(facts: HostFacts): CheckResult {
  checkTargetAddress(facts);
  const { osImage, kernelVersion, architecture, cpus, memoryBytes, addresses } = facts;
  const memory = `${(memoryBytes / 2 ** 30).toFixed(1)} GiB`;
  return ok(`${osImage}, kernel ${kernelVersion} (${architecture}), ${cpus} CPUs, ${memory}, address ${addresses[0]}`);
}

/** Kernel features that pods rely on. @see https://kubernetes.io/docs/setup/production-environment/container-runtimes/ */
async function kernel(
  { target: { host } }: TargetExamination,
  { appArmor }: HostFacts,
  signal: AbortSignal,
): Promise<readonly CheckResult[]> {
  const forwards = await ignoreNotFound(host.fs.readFile("/proc/sys/net/ipv4/ip_forward", { signal }));
  const seccomp = await exists(host.fs, "/proc/sys/kernel/seccomp/actions_avail", signal);
  const found: CheckResult[] = [];
  if (forwards?.toString().trim() === "0")
    found.push(warning("net.ipv4.ip_forward is 0: pods cannot reach anything beyond the machine until it is set to 1"));
  if (!seccomp) found.push(warning("the kernel has no seccomp: containers with a seccomp profile do not start"));
  return found.length > 0 ? found : [ok(`seccomp${appArmor ? ", AppArmor" : ""}, IP forwarding is on`)];
}

function swap({ kubelet }: TargetExamination, facts: HostFacts): CheckResult {
  checkTargetRequirements({ ...kubelet, failCgroupV1: false }, facts);
  return ok(facts.swapBytes > 0 ? "on, and failSwapOn is false" : "off");
}

function resourceManagerChecks({ exclusiveCpus, numaMemory, numaNodes }: TargetExamination): readonly Check[] {
  const described = { "CPU manager": exclusiveCpus, "memory manager": numaMemory, "topology manager": numaNodes };
  return Object.entries(described).flatMap(([name, describe]) =>
    describe ? [{ name, look: async (until: AbortSignal) => ok(await describe(until)) }] : [],
  );
}

async function cgroups(
  { target, kubelet }: TargetExamination,
  facts: HostFacts,
  signal: AbortSignal,
): Promise<CheckResult> {
  checkTargetRequirements({ ...kubelet, failSwapOn: false }, facts);
  const { cgroupVersion } = facts;
  checkCgroupControllers(cgroupVersion, await missingControllers(target.host, cgroupVersion, signal));
  if (cgroupVersion === 2) return ok("version 2");
  return warning("version 1, which is deprecated in Kubernetes: switch the machine to version 2", "CgroupV1");
}

async function runtime({ target, kubelet }: TargetExamination, signal: AbortSignal): Promise<readonly CheckResult[]> {
  const { runtimeName, runtimeVersion } = await target.runtime.version(signal);
  const at = await target.runtimeSocket?.(signal);
  const driver = await cgroupDriver(target, signal);
  const found: CheckResult[] = [ok(`${runtimeName} ${runtimeVersion}${at === undefined ? "" : ` at ${at}`}`)];
  const { status } = await target.runtime.status(signal);
  for (const { type, status: holds, reason, message } of status?.conditions ?? [])
    if (!holds)
      found.push(failure(`${type} is false: ${[reason, message].filter(Boolean).join(": ")}`, "KubeletNotReady"));
  if (driver === undefined)
    found.push(
      ok(`the runtime does not report its cgroup driver; the configured cgroupDriver is ${kubelet.cgroupDriver}`),
    );
  else found.push(ok(`cgroup driver ${driver}`));
  return found;
}

/** Undefined if the runtime does not report it. */
async function cgroupDriver({ runtime }: Target, signal: AbortSignal): Promise<string | undefined> {
  const config = await ignoreCode(runtime.runtimeConfig(signal), "unimplemented");
  return config?.linux && (config.linux.cgroupDriver === CgroupDriver.SYSTEMD ? "systemd" : "cgroupfs");
}

/** Fractions of a file system below which pods are evicted by default. */
const minFreeShare = { bytes: 0.1, inodes: 0.05 };

async function disk({ target: { host, link }, rootDir }: TargetExamination, signal: AbortSignal): Promise<CheckResult> {
  const mount = link && (await mountOf(host, rootDir, signal));
  if (mount && isInMemory(mount))
    return warning(
      `${rootDir} is in the machine's memory (${mount.fsType} at ${mount.path}), which a new node refuses: set rootDir to a directory on a disk`,
      "RootDirUnusable",
    );
  let place = rootDir;
  while (place !== "/" && !(await exists(host.fs, place, signal))) place = posix.dirname(place);
  const { capacityBytes, availableBytes, inodes, inodesFree } = await host.fs.fileSystemInfo(place, signal);
  const free = `${(availableBytes / 2 ** 30).toFixed(1)} of ${(capacityBytes / 2 ** 30).toFixed(1)} GiB free for ${rootDir}`;
  const short =
    availableBytes < capacityBytes * minFreeShare.bytes || (inodes > 0 && inodesFree < inodes * minFreeShare.inodes);
  return short
    ? warning(
        `${free}: below the kubelet's default thresholds, at which pods are evicted; free some space`,
        "DiskPressure",
      )
    : ok(free);
}

/** Clock difference beyond which tokens and certificates are rejected, milliseconds. */
const maxClockOffsetMs = 5_000;

async function clockOffset({ target: { host } }: TargetExamination, signal: AbortSignal): Promise<CheckResult> {
  const offMs = Math.round(await host.clock.offsetMs(signal));
  const off = `${(Math.abs(offMs) / 1000).toFixed(1)} s ${offMs < 0 ? "behind" : "ahead of"} graftlet's`;
  if (Math.abs(offMs) < maxClockOffsetMs) return ok(`${off} clock`);
  return warning(`${off} clock: set both by NTP, otherwise pods reject new certificates and tokens as not yet valid`);
}

async function resolver(
  { target: { host }, kubelet: { resolvConf } }: TargetExamination,
  signal: AbortSignal,
): Promise<CheckResult> {
  if (resolvConf === "") return ok("resolvConf is empty: pods use only the cluster's DNS");
  const { servers } = parseResolvConf((await host.fs.readFile(resolvConf, { signal })).toString());
  if (servers.length === 0)
    return warning(
      `${resolvConf} contains no name server: pods with dnsPolicy Default cannot resolve names; set another file in resolvConf`,
    );
  if (servers.every((server) => server.startsWith("127.") || server === "::1"))
    return warning(
      `${resolvConf} contains ${servers.join(", ")}, which pods cannot reach: set another file in resolvConf (with systemd-resolved: /run/systemd/resolve/resolv.conf)`,
    );
  return ok(`name servers ${servers.join(", ")}`);
}

async function agents(of: TargetExamination, signal: AbortSignal): Promise<CheckResult> {
  const record = await readOwnershipRecord(of.target.host.fs, of.rootDir, signal);
  if (record && record.node !== of.nodeName)
    return failure(`${of.rootDir} belongs to node ${record.node}: set another rootDir`, "RuntimeInUse");
  const other = await of.refuseOtherAgent(signal).then(
    () => undefined,
    (error: unknown) => ({ error }),
  );
  // On graftlet's own machine, the node that responds is this node itself.
  if (other && record && !of.target.link)
    return ok(`the node is running: an agent responds, and ${of.rootDir} is this node's`);
  if (other) throw other.error;
  return ok(record ? `${of.rootDir} is this node's` : `no other kubelet responds, and ${of.rootDir} is unused`);
}

async function network(
  { target, rootDir }: TargetExamination,
  signal: AbortSignal,
): Promise<CheckResult | readonly CheckResult[]> {
  const { isolated, obstacle, tunneled } = (await predictNetwork(target, rootDir, signal)) ?? {};
  if (isolated)
    return warning(
      `isolated: pods can reach neither Services nor the cluster's DNS; ${obstacle ?? "network: tunneled connects them over the link"}`,
      "PodNetworkIsolated",
    );
  if (!tunneled) return ok("the cluster's network, through your routes");
  const obstacles = await preflightFailures(target.host, rootDir, signal);
  if (obstacles.length === 0) {
    const active = await activeFirewalls(target.host, signal);
    const note =
      "is active: once a pod runs, a condition of the node (FirewallBlocksTunnel) reports whether it blocks pods";
    const firewall = active.length > 0 ? `; ${active.join(" and ")} ${note}` : "";
    return ok(`tunneled, and the target meets the requirements${firewall}`);
  }
  return obstacles.map((sentence) => failure(sentence, "ServiceTunnelUnavailable"));
}
