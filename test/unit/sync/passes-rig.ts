import { silentLog } from "../../../src/lib/log.ts";
import type { Pod, PodStatus } from "../../../src/objects.ts";
import { type PassDeps, createPasses } from "../../../src/sync/passes.ts";
import type { SyncOutcome } from "../../../src/sync/ports.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { eventLines } from "../../fakes/events.ts";
import { aContainer, observe } from "../../fakes/pods.ts";
import { noResizes } from "../../fakes/resizes.ts";
import { aColumn } from "../../fakes/state.ts";

export const c = aContainer("c");

/** Passes whose ports write down what they are asked, over a runtime that shows `seen`. */
export function rig(over: Partial<PassDeps> = {}) {
  const clock = fakeClock();
  const events = eventLines();
  const calls: string[] = [];
  const said = (what: string) => (subject?: Pod | string) =>
    void calls.push(`${what} ${typeof subject === "string" ? subject : (subject?.metadata.uid ?? "")}`.trim());
  const asked = (what: string) => async (subject?: Pod | string) => said(what)(subject);
  const world = {
    seen: observe([], []),
    phase: "Running",
    outcome: {} as SyncOutcome,
    unseen: false,
    /** Made by the pass: for a pod that has nothing else, or for another. */
    sandbox: undefined as "new" | "another" | undefined,
  };
  const deps: PassDeps = {
    podCache: { get: () => world.seen, list: () => [world.seen] },
    privateColumn: aColumn,
    inspector: {
      inspect: async () => (calls.push("inspect"), world.seen),
      needsInspection: () => world.unseen,
      recordObservation: () => void calls.push("learn"),
    },
    podRuntime: {
      plan: async () => {
        calls.push("plan");
        return {
          async perform(_mounted, show) {
            if (world.sandbox !== undefined) await show(world.sandbox === "new" ? world.seen : undefined);
            calls.push("perform");
            return world.outcome;
          },
        };
      },
      kill: async (_observed, pod, grace) => void calls.push(`kill ${pod?.metadata.uid} ${grace}`),
    },
    volumes: {
      async mount(pod) {
        said("mount")(pod);
        return new Map();
      },
      unmount: asked("unmount"),
    },
    objects: { register: said("register"), unregister: said("unregister") },
    prober: { add: said("probe"), stopLivenessAndStartup: said("spare"), remove: said("stop probing") },
    fieldChecker: { unsupportedFields: async () => [] },
    statuses: {
      get: () => undefined,
      set: (_pod, status) => void calls.push(`status ${status.phase}`),
      terminated: said("terminated"),
      reconcile: said("reconcile"),
    },
    events,
    resizes: noResizes,
    managers: [{ release: said("free resources") }],
    hostResources: { prepare: asked("prepare"), release: asked("release") },
    statusOf: (_pod, _observed, ending): PodStatus => ({ phase: ending ? "Failed" : world.phase }),
    onRejected: said("rejected"),
    daemonSetDecision: () => ({ kind: "pod", isFinal: true }),
    deletePod: async ({ uid }) => void calls.push(`delete ${uid}`),
    networkError: () => undefined,
    syncMs: 60_000,
    clock,
    log: silentLog(),
    ...over,
  };
  return { clock, events, calls, world, passes: createPasses(deps) };
}
