import { implementedGates } from "../../../src/config/feature-gates.ts";
import { createNodeMetrics } from "../../../src/metrics/node-metrics.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { parseExposition } from "./exposition.ts";

/** The metrics of one node. */
export function rig() {
  const clock = fakeClock();
  const metrics = createNodeMetrics({
    nodeName: 'node-"1"',
    kubeletVersion: "v1.36.3",
    graftletVersion: "0.1.0",
    gates: implementedGates({ KubeletCrashLoopBackOffMax: false }),
    credentialProviders: "sha256:00",
    clock,
  });
  const families = async () => parseExposition(await metrics.text());
  /** The value of a series, by `name{label="value",…}` with its labels sorted. */
  const value = async (series: string) => {
    const [name = "", labels = ""] = series.replace("}", "").split("{");
    for (const family of (await families()).values())
      for (const sample of family.samples) {
        const own = Object.entries(sample.labels)
          .map(([key, text]) => `${key}=${text}`)
          .sort()
          .join();
        if (sample.name === name && own === labels) return sample.value;
      }
    return undefined;
  };
  return { clock, metrics, measures: metrics.measures, families, value };
}
