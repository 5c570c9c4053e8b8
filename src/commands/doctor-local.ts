import { join } from "node:path";
import { currentFile } from "../certificates/pair-store.ts";
import type { ServedByProcess } from "../config/command-line.ts";
import type { NodeConfig } from "../config/node-config.ts";
import { type CertificateFile, examineCertificates } from "../doctor/certificates.ts";
import type { Finding } from "../doctor/findings.ts";
import { listenersAt } from "../doctor/listeners.ts";
import { type Port, examinePorts } from "../doctor/ports.ts";
import type { Clock } from "../lib/clock.ts";
import { ignoreCode } from "../lib/errors.ts";
import { requestStatus } from "../process/status-socket.ts";

export interface LocalMachineExamination {
  readonly node: NodeConfig;
  readonly process: ServedByProcess;
  readonly clock: Clock;
}

/** Checks a node's ports and certificates on graftlet's own machine, on which this runs. */
export async function examineLocalMachine(
  { node, process, clock }: LocalMachineExamination,
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
