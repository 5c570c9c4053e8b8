import type { ListerDeps } from "../api/listers.ts";
import { createReflector } from "../api/reflector.ts";
import type { Timer } from "../lib/clock.ts";
import { onAbort } from "../lib/runnables.ts";
import type { CSIDriver } from "../objects.ts";

export interface LimitUpdatesDeps extends ListerDeps {
  /** Reads the driver's volume limit again, and updates the CSINode. */
  readonly refreshLimit: (driver: string, signal: AbortSignal) => Promise<void>;
  /** Called with a registered driver whenever its CSIDriver object is created or changed. */
  readonly onCSIDriver: (driver: string, signal: AbortSignal) => Promise<void>;
}

/** Reads the volume limits of drivers periodically, at the interval in each CSIDriver; drivers without an interval are skipped. CSIDriver
 *  objects are watched only once a driver is registered: most nodes never have one.
 *  @see https://kubernetes.io/docs/concepts/storage/storage-limits/#mutable-csi-node-allocatable-count */
export function createLimitUpdates({ refreshLimit, onCSIDriver, ...deps }: LimitUpdatesDeps) {
  const { clock, log } = deps;
  const firstDriver = Promise.withResolvers<void>();
  const installed = new Set<string>();
  const planned = new Map<string, { readonly periodMs: number; timer?: Timer }>();
  const stopped = new AbortController();

  const update = async (driver: string) => {
    const plan = planned.get(driver);
    await refreshLimit(driver, stopped.signal).catch((err: unknown) => {
      if (!stopped.signal.aborted) log.warn({ err, driver }, "cannot update the volume limit of a CSI driver");
    });
    if (plan && planned.get(driver) === plan) schedule(driver, plan);
  };
  const schedule = (driver: string, plan: { readonly periodMs: number; timer?: Timer }) => {
    if (!stopped.signal.aborted) plan.timer = clock.after(plan.periodMs, () => void update(driver));
  };
  const handleChange = (driver: string) => {
    reschedule(driver);
    if (!installed.has(driver) || !reflector.get(undefined, driver)) return;
    void onCSIDriver(driver, stopped.signal).catch((err: unknown) => {
      if (!stopped.signal.aborted) log.warn({ err, driver }, "cannot publish the topology of a CSI driver");
    });
  };
  const reschedule = (driver: string) => {
    const seconds = reflector.get(undefined, driver)?.spec.nodeAllocatableUpdatePeriodSeconds ?? 0;
    const periodMs = installed.has(driver) ? seconds * 1000 : 0;
    if ((planned.get(driver)?.periodMs ?? 0) === periodMs) return;
    planned.get(driver)?.timer?.cancel();
    planned.delete(driver);
    if (periodMs === 0) return;
    const plan = { periodMs };
    planned.set(driver, plan);
    schedule(driver, plan);
  };
  const reflector = createReflector<CSIDriver>({
    ...deps,
    path: "/apis/storage.k8s.io/v1/csidrivers",
    handler: {
      replace() {
        for (const driver of installed) handleChange(driver);
      },
      changed: ({ metadata }) => handleChange(metadata.name),
    },
  });
  return {
    name: "csi-limits",
    /** The driver is registered. */
    addDriver(driver: string): void {
      installed.add(driver);
      firstDriver.resolve();
      handleChange(driver);
    },
    /** The driver is no longer registered. */
    removeDriver(driver: string): void {
      installed.delete(driver);
      reschedule(driver);
    },
    async run(signal: AbortSignal): Promise<void> {
      await Promise.race([firstDriver.promise, onAbort(signal)]);
      if (!signal.aborted) await reflector.run(signal);
      stopped.abort();
      for (const { timer } of planned.values()) timer?.cancel();
    },
  };
}
