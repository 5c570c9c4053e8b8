import { parseDuration } from "../lib/go-duration.ts";
import { quantitySign } from "./go-values.ts";
import type { TextMap } from "./value-types.ts";

/** Eviction signals that thresholds may use.
 *  @see https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#eviction-signals */
const evictionSignals = [
  "memory.available",
  "nodefs.available",
  "nodefs.inodesFree",
  "imagefs.available",
  "imagefs.inodesFree",
  "containerfs.available",
  "containerfs.inodesFree",
  "allocatableMemory.available",
  "pid.available",
] as const;

export type EvictionSignal = (typeof evictionSignals)[number];

/** The names, for lookups of any string. */
const names: readonly string[] = evictionSignals;

/** Applies a check to each value by its signal, and returns the first failure. */
function bySignal(check: (signal: string, value: string) => string | undefined): (map: TextMap) => string | undefined {
  return (map) => {
    for (const [signal, value] of Object.entries(map)) {
      const fault = names.includes(signal)
        ? check(signal, value)
        : `unsupported eviction signal ${signal}: use only ${names.join(", ")}`;
      if (fault !== undefined) return fault;
    }
    return undefined;
  };
}

/** The number before a percent sign; undefined without one. */
function percentage(value: string): number | undefined {
  return value.endsWith("%") ? Number(value.slice(0, -1).trim() || Number.NaN) : undefined;
}

/** Thresholds: quantities above 0, and percentages of 0 to 100. */
export const checkThresholds = bySignal((signal, value) => {
  const percent = percentage(value);
  if (percent === undefined) {
    const sign = quantitySign(value);
    if (sign === undefined) return `set ${signal} to a quantity such as "100Mi" or a percentage such as "10%"`;
    return sign > 0 ? undefined : `eviction threshold ${signal} must be positive: ${value}`;
  }
  if (Number.isNaN(percent)) return `set ${signal} to a percentage such as "10%"`;
  if (percent < 0) return `eviction percentage threshold ${signal} must be >= 0%: ${value}`;
  return percent <= 100 ? undefined : `eviction percentage threshold ${signal} must be <= 100%: ${value}`;
});

/** Grace periods of soft thresholds. */
export const checkGracePeriods = bySignal((signal, value) => {
  const ms = parseDuration(value);
  if (ms === undefined) return `set ${signal} to a duration such as "1m30s"`;
  return ms < 0 ? `invalid eviction grace period specified: ${value}, must be a positive value` : undefined;
});

/** Minimums to reclaim: quantities of 0 or more, and percentages above 0. */
export const checkMinimumReclaim = bySignal((signal, value) => {
  const percent = percentage(value);
  if (percent === undefined) {
    const sign = quantitySign(value);
    if (sign === undefined) return `set ${signal} to a quantity such as "500Mi" or a percentage such as "5%"`;
    return sign < 0 ? `negative eviction minimum reclaim specified for ${signal}` : undefined;
  }
  return percent > 0 ? undefined : `eviction percentage minimum reclaim ${signal} must be positive: ${value}`;
});

/** Warning that a threshold of the file system with container layers is ignored; undefined if none is configured. */
export function overriddenThresholds(map: TextMap): string | undefined {
  const given = Object.keys(map).find((signal) => signal.startsWith("containerfs."));
  return (
    given &&
    `${given} is ignored: the nodefs or imagefs threshold applies, depending on which file system has the layers`
  );
}
