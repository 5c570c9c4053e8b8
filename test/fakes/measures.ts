import { type Measures, createNodeMetrics } from "../../src/metrics/node-metrics.ts";
import { fakeClock } from "./clock.ts";

/** Metrics that no test reads. */
export const unmeasured: Measures = createNodeMetrics({
  nodeName: "node",
  kubeletVersion: "v1.0.0",
  graftletVersion: "0.0.0",
  gates: [],
  clock: fakeClock(),
}).measures;
