import type { ContainerStatus as RuntimeStatus, LinuxContainerResources } from "../../gen/cri.ts";
import type { Container, ContainerStatus } from "../../objects.ts";
import { canonicalBytes, quantityMilli, quantityValue } from "../../pod/quantity.ts";
import type { ResizableAmounts } from "../../pod/pod-resources.ts";

type Resources = NonNullable<ContainerStatus["resources"]>;
type List = { [name: string]: string };

/** Minimum amounts that runtimes can report. If an amount is at or below its minimum, the spec's amount is shown. */
export const minCpuLimitMilli = 10;
export const minCpuRequestMilli = 2;

/** Returns the resources for a container's status: the spec's amounts, or, while the container runs, the actual amounts that the
 *  runtime reports.
 *  @param container with its allocated resources.
 *  @param known actual amounts from another source.
 *  @see https://kubernetes.io/docs/tasks/configure-pod-container/resize-container-resources/ */
export function actualResources(
  container: Container,
  runtime: RuntimeStatus,
  running: boolean,
  known: ResizableAmounts | undefined,
): Resources {
  const { limits, requests, ...rest } = container.resources ?? {};
  const linux = running ? runtime.resources?.linux : undefined;
  const reported = running ? known : undefined;
  return {
    ...rest,
    ...(limits && { limits: { ...limits, ...actualLimits(limits, linux, reported) } }),
    ...(requests && { requests: { ...requests, ...actualRequests(requests, linux, reported) } }),
  };
}

function actualLimits(
  wanted: List,
  linux: LinuxContainerResources | undefined,
  known: ResizableAmounts | undefined,
): List {
  const milli = linux && linux.cpuPeriod > 0n ? Number((linux.cpuQuota * 1000n) / linux.cpuPeriod) : 0;
  const cpu = cpuText(milli > 0 ? milli : known?.cpuLimit, wanted["cpu"], minCpuLimitMilli);
  const bytes = linux && linux.memoryLimitInBytes > 0n ? Number(linux.memoryLimitInBytes) : known?.memoryLimit;
  const memory = bytesText(bytes, wanted["memory"]);
  return { ...(cpu && { cpu }), ...(memory && { memory }) };
}

/** Returns the actual requests. Runtimes do not report memory requests. */
function actualRequests(
  wanted: List,
  linux: LinuxContainerResources | undefined,
  known: ResizableAmounts | undefined,
): List {
  const milli = linux && linux.cpuShares > 0n ? Math.ceil((Number(linux.cpuShares) * 1000) / 1024) : known?.cpuRequest;
  const cpu = cpuText(milli, wanted["cpu"], minCpuRequestMilli);
  const memory = bytesText(known?.memoryRequest, wanted["memory"]);
  return { ...(cpu && { cpu }), ...(memory && { memory }) };
}

/** Formats an amount of CPU, in the spec's notation if the amounts are equal or neither exceeds the minimum; undefined without an
 *  amount. */
function cpuText(milli: number | undefined, wanted: string | undefined, min: number): string | undefined {
  if (!milli) return undefined;
  const wantedMilli = quantityMilli(wanted ?? "0");
  if (wantedMilli === milli || (milli <= min && wantedMilli <= min)) return wanted;
  return milli % 1000 === 0 ? String(milli / 1000) : `${milli}m`;
}

function bytesText(bytes: number | undefined, wanted: string | undefined): string | undefined {
  if (!bytes || (wanted !== undefined && quantityValue(wanted) === bytes)) return undefined;
  return canonicalBytes(bytes, 1024);
}
