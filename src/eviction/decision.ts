import type { Pressure } from "../pipeline.ts";
import { type Observations, signals } from "./signals.ts";
import { thresholdsMet, thresholdKey, type Threshold } from "./thresholds.ts";

/** Result of comparing observations with thresholds. */
export interface ThresholdDecision {
  /** Resources under pressure, now or within the transition period. */
  readonly pressure: Pressure;
  /** Thresholds met for their grace periods, memory first. */
  readonly metThresholds: readonly Threshold[];
}

/** Creates a decider without pressure. @param transitionMs KubeletConfiguration.evictionPressureTransitionPeriod: how long a
 *  condition stays after its threshold is no longer met.
 *  @see https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#node-conditions */
export function createDecider(transitionMs: number) {
  let met: readonly Threshold[] = [];
  let since = new Map<string, number>();
  const lastMet = new Map<keyof Pressure, number>();
  return {
    /** @param nowMs time on the monotonic clock, milliseconds. */
    decide(thresholds: readonly Threshold[], observations: Observations, nowMs: number) {
      const now = thresholdsMet(thresholds, observations, { reclaimed: false });
      // A threshold that was met stays met until its minimum reclaim is reached.
      const stillMet = thresholdsMet(met, observations, { reclaimed: true });
      const crossedNow = distinct([...now, ...stillMet]);
      since = new Map(crossedNow.map((each) => [thresholdKey(each), since.get(thresholdKey(each)) ?? nowMs]));
      for (const { signal } of crossedNow) lastMet.set(signals[signal].pressure, nowMs);
      met = crossedNow.filter((each) => nowMs - (since.get(thresholdKey(each)) ?? nowMs) >= each.graceMs);
      const hasPressure = (name: keyof Pressure) => {
        const last = lastMet.get(name);
        return last !== undefined && (last === nowMs || nowMs - last < transitionMs);
      };
      return {
        pressure: { memory: hasPressure("memory"), disk: hasPressure("disk"), pid: hasPressure("pid") },
        metThresholds: [...met.filter(isOfMemory), ...met.filter((each) => !isOfMemory(each))],
      };
    },
  };
}

function distinct(thresholds: readonly Threshold[]): readonly Threshold[] {
  return [...new Map(thresholds.map((each) => [thresholdKey(each), each])).values()];
}

function isOfMemory({ signal }: Threshold): boolean {
  return signals[signal].resource === "memory";
}
