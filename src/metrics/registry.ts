import type { Metric } from "prom-client";
import Counter from "prom-client/lib/counter.js";
import Gauge from "prom-client/lib/gauge.js";
import Histogram from "prom-client/lib/histogram.js";
import Registry from "prom-client/lib/registry.js";

/** Metrics of one node, in order of creation. */
export interface Metrics {
  counter<L extends string>(name: string, help: string, labels?: readonly L[]): CounterMetric<L>;
  histogram<L extends string>(name: string, help: string, so: HistogramOptions<L>): HistogramMetric<L>;
  /** A gauge whose value is read at each scrape. */
  gauge<L extends string>(name: string, help: string, so: GaugeOptions<L>): void;
  /** A counter whose value is read at each scrape. */
  total(name: string, help: string, value: () => number): void;
  /** Prometheus' exposition format. */
  text(): Promise<string>;
}

type Labels<L extends string> = Readonly<Record<L, string>>;

export interface CounterMetric<L extends string> {
  /** @param by default 1; 0 creates the series before the first event. */
  add(labels: Labels<L>, by?: number): void;
  remove(labels: Labels<L>): void;
}

export interface HistogramMetric<L extends string> {
  add(labels: Labels<L>, value: number): void;
  /** A duration, in seconds as in Prometheus. */
  addMs(labels: Labels<L>, ms: number): void;
  remove(labels: Labels<L>): void;
}

export interface HistogramOptions<L extends string> {
  readonly buckets: readonly number[];
  readonly labels?: readonly L[];
}

export interface GaugeOptions<L extends string> {
  readonly labels?: readonly L[];
  /** The current series, each with its value. */
  readonly values: () => Iterable<readonly [Labels<L>, number]> | Promise<Iterable<readonly [Labels<L>, number]>>;
}

/** Prometheus' default buckets, seconds. */
export const defaultBuckets = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

/** Creates the metrics of a node. A metric is kept once it has a value: a process may have a thousand nodes, most of whose metrics are never
 *  used.
 *  @see https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format */
export function createMetrics(): Metrics {
  /** Return the metrics as they are now, in order. */
  const shown: (() => Promise<Metric>)[] = [];
  const common = (name: string, help: string, labels: readonly string[] = []) => ({
    name,
    help,
    labelNames: [...labels],
    registers: [],
  });
  /** Creates a metric at its first use. Until then, an empty one is shown. */
  const onDemand = <M extends Metric>(create: () => M): (() => M) => {
    let metric: M | undefined;
    shown.push(async () => metric ?? create());
    return () => (metric ??= create());
  };
  return {
    counter(name, help, labels) {
      const counter = onDemand(() => new Counter(common(name, help, labels)));
      return { add: (given, by) => counter().inc(given, by ?? 1), remove: (given) => counter().remove(given) };
    },
    histogram(name, help, { labels, buckets }) {
      const histogram = onDemand(() => {
        const created = new Histogram({ ...common(name, help, labels), buckets: [...buckets] });
        if (!labels?.length) created.zero({});
        return created;
      });
      return {
        add: (given, value) => histogram().observe(given, value),
        addMs: (given, ms) => histogram().observe(given, ms / 1000),
        remove: (given) => histogram().remove(given),
      };
    },
    gauge(name, help, { labels, values }) {
      shown.push(async () => {
        const now = await values();
        const gauge = new Gauge(common(name, help, labels));
        // A gauge without labels would be 0 where it has no value.
        if (!labels?.length) gauge.remove({});
        for (const [given, value] of now) gauge.set(given, value);
        return gauge;
      });
    },
    total(name, help, value) {
      shown.push(async () => {
        const counter = new Counter(common(name, help));
        counter.inc(value());
        return counter;
      });
    },
    async text() {
      const registry = new Registry();
      for (const metric of await Promise.all(shown.map((show) => show()))) registry.registerMetric(metric);
      return registry.metrics();
    },
  };
}
