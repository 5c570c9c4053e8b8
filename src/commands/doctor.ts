import { join } from "node:path";
import { createCredentials } from "../api/credentials.ts";
import { type ContainerCommand, execInContainer } from "../api/exec.ts";
import { kubeconfigFile } from "../api/kubeconfig.ts";
import { serviceAccount } from "../api/service-account.ts";
import type { OptionsOf, ServedByProcess } from "../config/parse-result.ts";
import type { NodeConfig } from "../config/node-config.ts";
import type { TargetNetworks } from "../doctor/cidrs.ts";
import { examineCluster } from "../doctor/cluster.ts";
import { type Finding, warning } from "../doctor/findings.ts";
import { examinePod, podOf } from "../doctor/pod.ts";
import { examineTarget } from "../doctor/target.ts";
import { readNetworks } from "../host/networks.ts";
import { type Clock, systemClock } from "../lib/clock.ts";
import { silentLog } from "../lib/log.ts";
import { predictNetwork } from "../service-tunnel/network-mode.ts";
import type { Pod } from "../objects.ts";
import { type Target, hasOwnNetwork } from "../seams/provider.ts";
import { openTarget } from "../process/open-target.ts";
import { describeCpus, openPolicy } from "../cpus/open.ts";
import { describeNuma, openAlignment } from "../topology/open.ts";
import { cpuSettings, memorySettings, refusesSwap, topologySettings } from "../kubelet/settings.ts";
import { describeMemory, openMemory } from "../memory-manager/open.ts";
import { refuseOtherAgent } from "../process/other-agent.ts";
import { examineFleet, type FleetReport } from "./doctor-fleet.ts";
import { openClient } from "./open-client.ts";
import { type CommandContext, printJson } from "./terminal.ts";
import { currentFile } from "../certificates/pair-store.ts";
import { type CertificateFile, examineCertificates } from "../doctor/certificates.ts";
import { listenersAt, type Port, examinePorts } from "../doctor/ports.ts";
import { ignoreCode } from "../lib/errors.ts";
import { requestStatus } from "../process/status-socket.ts";

type DoctorOptions = OptionsOf<"doctor"> & CommandContext;

const podTimeoutMs = 60_000;

/** Checks the targets of nodes and of GraftedNodes, and the cluster if there is access to it, and prints the findings, one per line. It
 *  changes nothing.
 *  @returns true if there are no failures; warnings do not count.
 *  @throws CodedError, one sentence, if a node's settings are wrong, or the Pod's service account cannot be read. */
export async function runDoctor(options: DoctorOptions): Promise<boolean> {
  const { nodes, output, terminal } = options;
  const clock = systemClock();
  const reports: FleetReport[] = [];
  const add = (report: FleetReport) => {
    reports.push(report);
    if (output === "text") for (const line of lines(report)) terminal.print(line);
  };
  const pod = options.manifest && podOf(options.manifest);
  for (const node of nodes) {
    const findings = pod ? await examinePodOnNode(pod, options, node, clock) : await examineNode(options, node, clock);
    add({ node: node.nodeName, findings });
  }
  for await (const report of examineObjects(options, pod, clock)) add(report);
  if (output === "json") printJson(terminal, jsonOf(reports));
  return !reports.some(({ findings }) => findings.some(({ level }) => level === "failure"));
}

function jsonOf(reports: readonly FleetReport[]): object {
  const ofAll = reports.filter(({ node }) => node === undefined).flatMap(({ findings }) => findings);
  return { nodes: reports.filter(({ node }) => node !== undefined), ...(ofAll.length > 0 && { fleet: ofAll }) };
}

/** Checks the machines of GraftedNodes with the Pod's service account. */
async function* examineObjects(
  options: DoctorOptions,
  pod: Pod | undefined,
  clock: Clock,
): AsyncGenerator<FleetReport> {
  const { fleet, signal } = options;
  const account = serviceAccount(options.env);
  if (!fleet || !account) return;
  await using client = openClient(account, clock);
  yield* examineFleet(
    {
      fleet: fleet.config,
      node: fleet.node,
      client,
      namespace: account.namespace(),
      clock,
      async examineMachine(node, reported) {
        if (pod) return await examinePodOnNode(pod, options, node, clock);
        return [...reported, ...(await examineNode(options, node, clock))];
      },
      async examineNode(nodeName, reported) {
        if (pod) return [{ check: `pod ${pod.metadata.name}`, ...unreachable }];
        return [...reported, ...(await examineNodeCluster(options, { nodeName }, undefined, clock))];
      },
    },
    signal,
  );
}

const unreachable = warning(
  "not checked: the machine connects to the running graftlet, and cannot be reached from here",
);

async function examinePodOnNode(
  pod: Pod,
  { providers, signal }: DoctorOptions,
  node: NodeConfig,
  clock: Clock,
): Promise<readonly Finding[]> {
  await using target = await openTarget({ config: node, providers, clock, log: silentLog() });
  const timeout = clock.within(podTimeoutMs, signal);
  const rootDir = target.rootDir ?? node.rootDir;
  const network = await predictNetwork(target, rootDir, timeout);
  return await examinePod(
    pod,
    { ...target, ...(network && { network }) },
    { daemonSets: node.daemonSets, rootDir, cpuCfsQuota: node.kubelet.cpuCFSQuota },
    timeout,
  );
}

/** Checks the target, the node's ports and certificates on graftlet's own machine, and the cluster. */
async function examineNode(options: DoctorOptions, node: NodeConfig, clock: Clock): Promise<readonly Finding[]> {
  const { findings, networks } = await examineNodeTarget(options, node, clock);
  const here = await examineLocalMachine({ ...options, node, clock }, options.signal);
  return [...findings, ...here, ...(await examineNodeCluster(options, node, networks, clock))];
}

async function examineNodeTarget(
  { providers, signal }: DoctorOptions,
  node: NodeConfig,
  clock: Clock,
): Promise<{ readonly findings: readonly Finding[]; readonly networks: TargetNetworks | undefined }> {
  const opened = await openTarget({ config: node, providers, clock, log: silentLog() });
  await using _closed = opened;
  const { nodeName, kubelet } = node;
  const rootDir = opened.rootDir ?? node.rootDir;
  const other = (until: AbortSignal) => refuseOtherAgent({ ...opened, clock }, until);
  const exclusiveCpus =
    kubelet.cpuManagerPolicy === "static"
      ? async (until: AbortSignal) =>
          describeCpus(await openPolicy({ ...cpuSettings(node), rootDir }, opened.host, silentLog(), until))
      : undefined;
  const numaMemory =
    kubelet.memoryManagerPolicy === "Static"
      ? async (until: AbortSignal) => {
          const state = await openMemory({ ...memorySettings(node), rootDir }, opened.host, silentLog(), until);
          return state ? describeMemory(state) : "";
        }
      : undefined;
  const alignment = topologySettings(node);
  const numaNodes =
    alignment && (async (until: AbortSignal) => describeNuma(await openAlignment(alignment, opened.host, until)));
  const managers = { exclusiveCpus, numaMemory, numaNodes };
  const checked = { ...kubelet, failSwapOn: refusesSwap(node, opened) };
  const of = { target: opened, nodeName, rootDir, kubelet: checked, refuseOtherAgent: other, ...managers, clock };
  const findings = await examineTarget(of, signal);
  const isReached = findings.some(({ check, level }) => check === "link" && level === "ok");
  return { findings, networks: isReached ? await networksOf(opened, rootDir, signal) : undefined };
}

/** @returns undefined if the networks cannot be read. */
async function networksOf(opened: Target, rootDir: string, signal: AbortSignal): Promise<TargetNetworks | undefined> {
  try {
    const networks = await readNetworks(opened.host.fs, signal);
    return { networks, separate: hasOwnNetwork(await predictNetwork(opened, rootDir, signal)) };
  } catch (error) {
    if (signal.aborted) throw error;
    return undefined;
  }
}

async function examineNodeCluster(
  { kubeconfig, env, signal }: DoctorOptions,
  { nodeName }: Pick<NodeConfig, "nodeName">,
  networks: TargetNetworks | undefined,
  clock: Clock,
): Promise<readonly Finding[]> {
  const access = kubeconfig === undefined ? serviceAccount(env) : kubeconfigFile(kubeconfig);
  if (!access) return [];
  await using client = openClient(access, clock);
  const credentials = createCredentials({ from: access, clock, log: silentLog() });
  const exec = async (command: ContainerCommand, until: AbortSignal) =>
    execInContainer(await credentials.current(), command, until);
  return await examineCluster({ client, nodeName, exec, target: networks, clock }, signal);
}

const marks: Readonly<Record<Finding["level"], string>> = { ok: "ok", warning: "warning", failure: "FAILURE" };

function lines({ node, findings }: FleetReport): readonly string[] {
  const width = Math.max(...findings.map(({ check }) => check.length));
  return [
    node === undefined ? "fleet" : `node ${node}`,
    ...findings.map(({ check, level, reason, message }) => {
      const why = reason === undefined ? "" : `${reason}: `;
      return `  ${marks[level].padEnd(8)} ${check.padEnd(width)}  ${why}${message}`;
    }),
  ];
}

/** Checks a node's ports and certificates on graftlet's own machine, on which this runs. */
async function examineLocalMachine(
  { node, process, clock }: { readonly node: NodeConfig; readonly process: ServedByProcess; readonly clock: Clock },
  signal: AbortSignal,
): Promise<readonly Finding[]> {
  const runner = await runningProcess(node, process, clock, signal);
  return [
    ...(await examinePorts({ ports: portsOf(node, process), runner, listenersAt }, signal)),
    ...(await examineCertificates(certificatesOf(node), clock, signal)),
  ];
}

/** ID of the graftlet process that runs the node, if one responds. */
async function runningProcess(
  { nodeName }: NodeConfig,
  { statusSocket }: ServedByProcess,
  clock: Clock,
  signal: AbortSignal,
): Promise<number | undefined> {
  if (statusSocket === undefined) return undefined;
  const report = await ignoreCode(requestStatus(statusSocket, clock, signal), "unavailable");
  return report?.nodes.some(({ name }) => name === nodeName) ? report.pid : undefined;
}

function portsOf({ kubelet }: NodeConfig, { health, page }: ServedByProcess): readonly Port[] {
  const { enableServer, address, port, healthzBindAddress, healthzPort } = kubelet;
  const healthPort = { of: "health endpoint", addressField: "healthzBindAddress", portField: "healthzPort" };
  const all = [
    { of: "kubelet API", address, port: enableServer ? port : 0, addressField: "address", portField: "port" },
    { ...healthPort, address: healthzBindAddress, port: healthzPort },
    ...(health ? [{ ...healthPort, ...health }] : []),
    ...(page ? [{ of: "page", ...page, addressField: "pageAddress", portField: "pagePort" }] : []),
  ];
  return all.filter(({ port: at }) => at > 0);
}

function certificatesOf({ certDir, kubelet }: NodeConfig): readonly CertificateFile[] {
  const issued = "check that its request is approved (kubectl get csr), and check graftlet's log";
  const own = kubelet.tlsCertFile
    ? { file: kubelet.tlsCertFile, remedy: "replace tlsCertFile and its key with a new pair" }
    : kubelet.serverTLSBootstrap
      ? { file: currentFile(certDir, "kubelet-server"), remedy: issued }
      : { file: join(certDir, "kubelet.crt"), remedy: "restart graftlet, which creates a new one" };
  return [
    { of: "the node's", file: currentFile(certDir, "kubelet-client"), remedy: issued },
    { of: "the kubelet API's", ...own },
  ];
}
