import type { HookMeasures } from "../runtime/hooks.ts";
import type { Metrics } from "./registry.ts";

/** Creates the metrics of containers' lifecycle hooks. */
export function hookMetrics(metrics: Metrics): HookMeasures {
  const fallbacks = metrics.counter(
    "kubelet_lifecycle_handler_http_fallbacks_total",
    "Hooks that succeeded over HTTP after failing over HTTPS.",
    [],
  );
  const cutOff = metrics.counter("kubelet_sleep_action_terminated_early_total", "Sleep hooks that ended early.", []);
  return { fellBackToHttp: () => fallbacks.add({}), sleepCutOff: () => cutOff.add({}) };
}
