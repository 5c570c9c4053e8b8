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

/** @throws TargetError, in the kubelet's words, if a required cgroup controller is missing. */
export function checkCgroupControllers(controllers: readonly string[]): void {
  if (controllers.length === 0) return;
  const missing = `Following Cgroup subsystem not mounted: [${controllers.join(" ")}]`;
  throw new TargetError("CgroupSubsystemMissing", "failed_precondition", `system validation failed - ${missing}`);
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
