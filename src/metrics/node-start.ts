import type { Clock } from "../lib/clock.ts";
import type { NodeStartMeasures } from "../node/registration.ts";
import type { Metrics } from "./registry.ts";

type Moment = keyof NodeStartMeasures;

/** Creates the metrics of a new node's start, by phase; all are 0 for a node that already existed.
 *  @see https://github.com/kubernetes/enhancements/tree/master/keps/sig-node/3203-node-startup-latency */
export function nodeStartMetrics(metrics: Metrics, clock: Clock): NodeStartMeasures {
  const begunAt = clock.now();
  const first = new Map<Moment, number>();
  const seconds = (from: number | undefined, to: number | undefined) =>
    from === undefined || to === undefined ? 0 : (to - from) / 1000;
  const gauge = (name: string, help: string, value: () => number) =>
    metrics.gauge(`kubelet_node_startup_${name}duration_seconds`, `${help}, in seconds.`, {
      values: () => [[{}, first.has("registered") ? value() : 0]],
    });
  const at = (moment: Moment) => first.get(moment);
  gauge("pre_kubelet_", "Time from the machine's boot to the start of this node", () => seconds(at("booted"), begunAt));
  gauge("pre_registration_", "Time from the start of this node to the first attempt to register it", () =>
    seconds(begunAt, at("registering")),
  );
  gauge("registration_", "Time from the first attempt to register this node until it was registered", () =>
    seconds(at("registering"), at("registered")),
  );
  gauge("post_registration_", "Time from the registration of this node until it was first Ready", () =>
    seconds(at("registered"), at("ready")),
  );
  gauge("", "Time from the machine's boot until the new node was first Ready", () =>
    seconds(at("booted"), at("ready")),
  );
  const once = (moment: Moment, when: number) => void (first.has(moment) || first.set(moment, when));
  return {
    booted: (when) => once("booted", when),
    registering: () => once("registering", clock.now()),
    registered: () => once("registered", clock.now()),
    // An existing node becomes ready without being registered.
    ready: () => void (first.has("registered") && once("ready", clock.now())),
  };
}
