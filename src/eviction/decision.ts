import type { Pressure } from "../pipeline.ts";
import { type Observations, signals } from "./signals.ts";
import { crossed, keyOf, type Threshold } from "./thresholds.ts";

/** Outcome of a round. */
export interface Decision {
  /** Resources that run short, or did so lately. */
  readonly pressure: Pressure;
  /** Thresholds that have been crossed for their grace periods, memory first. */
  readonly due: readonly Threshold[];
}

/** Remembers which thresholds have been crossed, and for how long. */
export interface Decider {
  /** @param nowMs monotonic. */
  decide(thresholds: readonly Threshold[], observations: Observations, nowMs: number): Decision;
}

/** Nothing runs short.
 *  @param transitionMs KubeletConfiguration.evictionPressureTransitionPeriod: how long a condition stays when its cause has gone.
 *  @see https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#node-conditions */
export function createDecider(transitionMs: number): Decider {
  let met: readonly Threshold[] = [];
  let since = new Map<string, number>();
  const lastShort = new Map<keyof Pressure, number>();
  return {
    decide(thresholds, observations, nowMs) {
      const now = crossed(thresholds, observations, { reclaimed: false });
      // One that was met stays so until enough has been reclaimed.
      const stillMet = crossed(met, observations, { reclaimed: true });
      const crossedNow = distinct([...now, ...stillMet]);
      since = new Map(crossedNow.map((each) => [keyOf(each), since.get(keyOf(each)) ?? nowMs]));
      for (const { signal } of crossedNow) lastShort.set(signals[signal].pressure, nowMs);
      met = crossedNow.filter((each) => nowMs - (since.get(keyOf(each)) ?? nowMs) >= each.graceMs);
      const isShort = (name: keyof Pressure) => {
        const last = lastShort.get(name);
        return last !== undefined && (last === nowMs || nowMs - last < transitionMs);
      };
      return {
        pressure: { memory: isShort("memory"), disk: isShort("disk"), pid: isShort("pid") },
        due: [...met.filter(isOfMemory), ...met.filter((each) => !isOfMemory(each))],
      };
    },
  };
}

function distinct(thresholds: readonly Threshold[]): readonly Threshold[] {
  return [...new Map(thresholds.map((each) => [keyOf(each), each])).values()];
}

function isOfMemory({ signal }: Threshold): boolean {
  return signals[signal].resource === "memory";
}
