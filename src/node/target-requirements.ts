import type { HostFacts } from "../host/facts.ts";
import { TargetError } from "../seams/provider.ts";

/** @throws TargetError if the target does not meet the requirements. */
export function checkTargetRequirements(
  { failSwapOn, failCgroupV1 }: { readonly failSwapOn: boolean; readonly failCgroupV1: boolean },
  { swapBytes, cgroupVersion }: Pick<HostFacts, "swapBytes" | "cgroupVersion">,
): void {
  if (failSwapOn && swapBytes > 0) {
    throw new TargetError(
      "SwapEnabled",
      "failed_precondition",
      "failSwapOn is true and the target has swap on: turn swap off, or set failSwapOn to false",
    );
  }
  if (failCgroupV1 && cgroupVersion === 1) {
    throw new TargetError(
      "CgroupV1",
      "failed_precondition",
      "failCgroupV1 is true and the target has cgroup v1: move it to cgroup v2, or set failCgroupV1 to false",
    );
  }
}

/** @param missing required controllers that the target lacks.
 *  @throws TargetError if there are any: with v1 in the kubelet's words. */
export function checkCgroupControllers(version: 1 | 2, missing: readonly string[]): void {
  if (missing.length === 0) return;
  const names = `[${missing.join(" ")}]`;
  const complaint =
    version === 1
      ? `Following Cgroup subsystem not mounted: ${names}`
      : `the kernel lacks cgroup controllers: ${names}: enable them on its command line (cgroup_enable=memory, and no cgroup_disable), or use a kernel that has them`;
  throw new TargetError("CgroupSubsystemMissing", "failed_precondition", `system validation failed - ${complaint}`);
}

/** @throws TargetError for a target that has only loopback addresses. */
export function checkTargetAddress({ addresses }: Pick<HostFacts, "addresses">): void {
  if (addresses.length > 0) return;
  throw new TargetError(
    "TargetAddressUnknown",
    "failed_precondition",
    "the target has only loopback addresses, which would become its pods' hostIP: add another address",
  );
}
