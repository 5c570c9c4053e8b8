import { CgroupDriver as CriDriver } from "../gen/cri.ts";
import { hasCode } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { createSharedPromise } from "../lib/single-flight.ts";
import type { CgroupDriver, CgroupLayout } from "../pod/cgroup-path.ts";
import type { Runtime } from "../seams/runtime.ts";

export interface LayoutDeps extends ClockAndLog {
  readonly runtime: Pick<Runtime, "runtimeConfig">;
  /** cgroupDriver, cgroupRoot and cgroupsPerQOS of the KubeletConfiguration. */
  readonly kubelet: {
    readonly cgroupDriver: CgroupDriver;
    readonly cgroupRoot: string;
    readonly cgroupsPerQOS: boolean;
  };
  /** Called if the runtime does not implement RuntimeConfig: later kubelets will not support it. */
  onOutdatedRuntime?(): void;
}

/** Timeout for asking the runtime for its cgroup driver, milliseconds. */
const timeoutMs = 120_000;

/** Creates the lookup of the layout of pod cgroups. The layout uses the cgroup driver that the runtime reports, otherwise the configured
 *  driver. It is determined once.
 *  @see https://github.com/kubernetes/enhancements/tree/master/keps/sig-node/4033-group-driver-detection-over-cri */
export function createCgroupLayout(deps: LayoutDeps): (signal: AbortSignal) => Promise<CgroupLayout> {
  const { kubelet, clock } = deps;
  let known: CgroupLayout | undefined;
  const shared = createSharedPromise<CgroupLayout>(clock, timeoutMs);
  const read = async (signal: AbortSignal) => {
    known = {
      driver: await driverOf(deps, signal),
      root: kubelet.cgroupRoot,
      perQos: kubelet.cgroupsPerQOS,
    };
    return known;
  };
  return async (signal) => known ?? shared(read, signal);
}

async function driverOf(
  { runtime, kubelet, onOutdatedRuntime, log }: LayoutDeps,
  signal: AbortSignal,
): Promise<CgroupDriver> {
  const configured = kubelet.cgroupDriver;
  try {
    const { linux, isInferred = false } = await runtime.runtimeConfig(signal);
    if (isInferred) onOutdatedRuntime?.();
    if (!linux) return configured;
    const driver = linux.cgroupDriver === CriDriver.SYSTEMD ? "systemd" : "cgroupfs";
    if (driver !== configured)
      log.info({ cgroupDriver: driver, configured }, "using the runtime's cgroup driver instead of the configured one");
    return driver;
  } catch (error) {
    if (!hasCode(error, "unimplemented")) throw error;
    onOutdatedRuntime?.();
    log.info({ cgroupDriver: configured }, "the runtime does not report its cgroup driver; using the configured one");
    return configured;
  }
}
