import type { Measure } from "../messages.ts";

/** Plotted metrics. */
const plottedMetrics = ["cpu", "memory", "rx", "tx", "disk"] as const;
export type Metric = (typeof plottedMetrics)[number];

/** Samples of one node, pod or container, oldest first; `rx` and `tx` in bytes per second. */
export interface Track {
  readonly at: number[];
  readonly values: Readonly<Record<Metric, (number | undefined)[]>>;
  /** The last sample as received. */
  last: Measure;
}

/** Maximum number of points per track: half an hour of samples every ten seconds. */
export const keptPoints = 180;

export function newTrack(): Track {
  return { at: [], values: { cpu: [], memory: [], rx: [], tx: [], disk: [] }, last: {} };
}

/** Adds a sample unless it has been added. @param at milliseconds since the epoch. */
export function addSample(track: Track, at: number, measure: Measure): void {
  const before = track.at.at(-1);
  if (before !== undefined && at <= before) return;
  const seconds = before === undefined ? 0 : (at - before) / 1000;
  for (const metric of plottedMetrics) {
    const total = metric === "rx" || metric === "tx";
    const value = total ? rate(track.last[metric], measure[metric], seconds) : measure[metric];
    track.values[metric].push(value);
  }
  track.at.push(at);
  track.last = measure;
  if (track.at.length > keptPoints) for (const list of [track.at, ...Object.values(track.values)]) list.shift();
}

/** A counter's increase per second; undefined if unknown or if the counter was reset. */
function rate(before: number | undefined, now: number | undefined, seconds: number): number | undefined {
  if (before === undefined || now === undefined || now < before || seconds <= 0) return undefined;
  return (now - before) / seconds;
}

/** The newest value; undefined if unknown. */
export function latest(track: Track | undefined, metric: Metric): number | undefined {
  return track?.values[metric].at(-1);
}
