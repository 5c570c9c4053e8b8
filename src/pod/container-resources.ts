import type { ContainerStatus as RuntimeStatus, LinuxContainerResources } from "../gen/cri.ts";
import type { Container, ContainerStatus } from "../objects.ts";
import { quantityMilli, quantityValue } from "./quantity.ts";

type Resources = NonNullable<ContainerStatus["resources"]>;
type Amounts = { [name: string]: string };

/** At or below these a runtime cannot tell amounts apart, and what it says is not read back. */
const leastCpuLimitMilli = 10;
const leastCpuRequestMilli = 2;

/** What a container has been given: its spec's amounts, and over them what the runtime says is in force while it runs.
 *  @param before the status that was last shown, for a runtime that does not tell.
 *  @see https://kubernetes.io/docs/tasks/configure-pod-container/resize-container-resources/ */
export function resourcesInForce(
  container: Container,
  runtime: RuntimeStatus,
  running: boolean,
  before: ContainerStatus | undefined,
): Resources {
  const { limits, requests, ...rest } = container.resources ?? {};
  const linux = running ? runtime.resources?.linux : undefined;
  const told =
    running && before?.state?.running && before.containerID?.endsWith(`//${runtime.id}`) ? before.resources : undefined;
  return {
    ...rest,
    ...(limits && { limits: { ...limits, ...limitsInForce(limits, linux, told?.limits) } }),
    ...(requests && { requests: { ...requests, ...requestsInForce(requests, linux, told?.requests) } }),
  };
}

function limitsInForce(
  wanted: Amounts,
  linux: LinuxContainerResources | undefined,
  told: Amounts | undefined,
): Amounts {
  const milli = linux && linux.cpuPeriod > 0n ? Number((linux.cpuQuota * 1000n) / linux.cpuPeriod) : 0;
  const cpu = milli > 0 ? cpuText(milli, wanted["cpu"], leastCpuLimitMilli) : told?.["cpu"];
  const bytes = linux && linux.memoryLimitInBytes > 0n ? Number(linux.memoryLimitInBytes) : 0;
  const memory = bytes > 0 ? bytesText(bytes, wanted["memory"]) : told?.["memory"];
  return { ...(cpu && { cpu }), ...(memory && { memory }) };
}

function requestsInForce(
  wanted: Amounts,
  linux: LinuxContainerResources | undefined,
  told: Amounts | undefined,
): Amounts {
  const milli = linux && linux.cpuShares > 0n ? Math.ceil((Number(linux.cpuShares) * 1000) / 1024) : 0;
  const cpu = milli > 0 ? cpuText(milli, wanted["cpu"], leastCpuRequestMilli) : told?.["cpu"];
  const memory = told?.["memory"];
  return { ...(cpu && { cpu }), ...(memory && { memory }) };
}

/** The spec's own spelling where it means the same, or where both are too little to tell apart. */
function cpuText(milli: number, wanted: string | undefined, least: number): string | undefined {
  const wantedMilli = quantityMilli(wanted ?? "0");
  if (wantedMilli === milli || (milli <= least && wantedMilli <= least)) return wanted;
  return milli % 1000 === 0 ? String(milli / 1000) : `${milli}m`;
}

function bytesText(bytes: number, wanted: string | undefined): string {
  if (wanted !== undefined && quantityValue(wanted) === bytes) return wanted;
  let amount = bytes;
  let unit = 0;
  while (amount > 0 && amount % 1024 === 0 && unit < 6) {
    amount /= 1024;
    unit += 1;
  }
  return `${amount}${["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][unit]}`;
}
