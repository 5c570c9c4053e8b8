import type { SelinuxMeasures } from "../volumes/measures.ts";
import type { Metrics } from "./registry.ts";

/** Creates the metrics of volumes' SELinux labels. As in the kubelet they are gauges, although the values only grow. */
export function selinuxMetrics(metrics: Metrics): SelinuxMeasures {
  const counted = <L extends string>(name: string, help: string, labels: readonly L[]) => {
    const series = new Map<string, { readonly labels: Readonly<Record<L, string>>; count: number }>();
    metrics.gauge(`volume_manager_selinux_${name}_total`, help, {
      labels,
      values: () => [...series.values()].map((one) => [one.labels, one.count]),
    });
    return (own: Readonly<Record<L, string>>) => {
      const key = JSON.stringify(Object.values(own));
      const one = series.get(key) ?? { labels: own, count: 0 };
      one.count += 1;
      series.set(key, one);
    };
  };
  const both = <L extends string>(name: string, what: string, labels: readonly L[]) => {
    const error = counted(`${name}_errors`, `${what}; the pod does not start.`, labels);
    const warning = counted(`${name}_warnings`, `${what}, for access modes without SELinux mounts.`, labels);
    return (isError: boolean, own: Readonly<Record<L, string>>) => (isError ? error : warning)(own);
  };
  const ofMode = ["access_mode"] as const;
  const ofVolume = ["volume_plugin", "access_mode"] as const;
  const container = both("container", "Containers whose SELinux label cannot be computed", ofMode);
  const pod = both(
    "pod_context_mismatch",
    "Pods whose containers share a volume with different SELinux labels",
    ofMode,
  );
  const volume = both("volume_context_mismatch", "Pods that share a volume with a different SELinux label", ofVolume);
  const admitted = counted("volumes_admitted", "Volumes with an SELinux label to mount with.", ofVolume);
  return {
    selinuxContainerFailed: (isError, mode) => container(isError, { access_mode: mode }),
    selinuxContainersDiffer: (isError, mode) => pod(isError, { access_mode: mode }),
    selinuxPodsDiffer: (isError, plugin, mode) => volume(isError, { volume_plugin: plugin, access_mode: mode }),
    selinuxAdmitted: (plugin, mode) => admitted({ volume_plugin: plugin, access_mode: mode }),
  };
}
