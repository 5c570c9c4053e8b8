import type { ListerDeps } from "../api/listers.ts";
import { createReflector } from "../api/reflector.ts";
import type { Timer } from "../lib/clock.ts";
import { onAbort, type Service } from "../lib/service-group.ts";
import type { CSIDriver } from "../objects.ts";

export interface CountUpdatesDeps extends ListerDeps {
  /** Asks a driver anew for the most volumes that the node can have, and shows it. */
  readonly refresh: (driver: string, signal: AbortSignal) => Promise<void>;
  /** Told of a registered driver whose CSIDriver object is there, at each change of that object. */
  readonly appeared: (driver: string, signal: AbortSignal) => Promise<void>;
}

/** Updates of what drivers can have on a node, for those that want that. */
export interface CountUpdates extends Service {
  /** A driver is registered from now on. */
  begin(driver: string): void;
  /** It is no longer. */
  end(driver: string): void;
}

/** Asks drivers again and again how many volumes the node can have, each in the period that its CSIDriver gives; one without is not asked.
 *  Those objects are watched from the first driver on: most nodes never have one.
 *  @see https://kubernetes.io/docs/concepts/storage/storage-limits/#mutable-csi-node-allocatable-count */
export function createCountUpdates({ refresh, appeared, ...deps }: CountUpdatesDeps): CountUpdates {
  const { clock, log } = deps;
  const wanted = Promise.withResolvers<void>();
  const installed = new Set<string>();
  const planned = new Map<string, { readonly periodMs: number; timer?: Timer }>();
  const stopped = new AbortController();

  const update = async (driver: string) => {
    const plan = planned.get(driver);
    await refresh(driver, stopped.signal).catch((err: unknown) => {
      if (!stopped.signal.aborted) log.warn({ err, driver }, "a storage driver's limit could not be updated");
    });
    if (plan && planned.get(driver) === plan) schedule(driver, plan);
  };
  const schedule = (driver: string, plan: { readonly periodMs: number; timer?: Timer }) => {
    if (!stopped.signal.aborted) plan.timer = clock.after(plan.periodMs, () => void update(driver));
  };
  const look = (driver: string) => {
    settle(driver);
    if (!installed.has(driver) || !reflector.get(undefined, driver)) return;
    void appeared(driver, stopped.signal).catch((err: unknown) => {
      if (!stopped.signal.aborted) log.warn({ err, driver }, "the topology of a storage driver could not be shown");
    });
  };
  const settle = (driver: string) => {
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
        for (const driver of installed) look(driver);
      },
      changed: ({ metadata }) => look(metadata.name),
    },
  });
  return {
    name: "limits of storage drivers",
    begin(driver) {
      installed.add(driver);
      wanted.resolve();
      look(driver);
    },
    end(driver) {
      installed.delete(driver);
      settle(driver);
    },
    async run(signal) {
      await Promise.race([wanted.promise, onAbort(signal)]);
      if (!signal.aborted) await reflector.run(signal);
      stopped.abort();
      for (const { timer } of planned.values()) timer?.cancel();
    },
  };
}
