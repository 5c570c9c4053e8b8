import type { Pressure } from "../pipeline.ts";
import { type Observations, signals } from "./signals.ts";
import { crossed, keyOf, type Threshold } from "./thresholds.ts";

/** Result of comparing observations with thresholds. */
export interface Decision {
  /** Resources under pressure, now or within the transition period. */
  readonly pressure: Pressure;
  /** Thresholds met for their grace periods, memory first. */
  readonly due: readonly Threshold[];
}

/** Tracks which thresholds are met, and for how long. */
export interface Decider {
  /** @param nowMs monotonic. */
  decide(thresholds: readonly Threshold[], observations: Observations, nowMs: number): Decision;
}

/** Creates a decider without pressure. @param transitionMs KubeletConfiguration.evictionPressureTransitionPeriod: how long a
 *  condition stays after its threshold is no longer met.
 *  @see https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#node-conditions */
export function createDecider(transitionMs: number): Decider {
  let met: readonly Threshold[] = [];
  let since = new Map<string, number>();
  const lastShort = new Map<keyof Pressure, number>();
  return {
    decide(thresholds, observations, nowMs) {
      const now = crossed(thresholds, observations, { reclaimed: false });
      // A threshold that was met stays met until its minimum reclaim is reached.
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
