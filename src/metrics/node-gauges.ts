import { X509Certificate } from "node:crypto";
import type { PodCertificates } from "../certificates/pod-certificates.ts";
import type { CpuCounts } from "../cpus/manager.ts";
import type { ResizeCounts } from "../allocation/resize-states.ts";
import { ContainerState, PodSandboxState } from "../gen/cri.ts";
import type { Clock } from "../lib/clock.ts";
import type { Pod } from "../objects.ts";
import type { MountedVolume, PodCache, PodStore } from "../pipeline.ts";
import { isStaticPod } from "../pod/containers.ts";
import type { PlaceholderCount } from "../pod/placeholder-counts.ts";
import { volumePlugin } from "../pod/volume-plugin.ts";
import type { Metrics } from "./registry.ts";

/** The node's state at the time of a scrape. */
export interface NodeGauges {
  /** Pods desired by the sources. */
  readonly desired: PodStore;
  /** The mirror pods of this node's static pods. */
  mirrors(): readonly Pod[];
  /** The runtime's pods. */
  readonly podCache: PodCache;
  /** The pods with a worker; `pod` is undefined for one known only to the runtime. */
  workers(): readonly PodWorkerState[];
  mounted(uid: string): ReadonlyMap<string, MountedVolume>;
  resizes(): ResizeCounts;
  /** Pods that are shown as Ready although they do not run, by DaemonSet. */
  placeholders(): readonly PlaceholderCount[];
  /** Set if containers can get exclusive CPUs. */
  readonly cpus?: { counts(): CpuCounts } | undefined;
  readonly cgroupVersion: number;
  /** Certificates of projected volumes. */
  podCertificates(): ReturnType<PodCertificates["states"]>;
  /** PEM certificates: the kubelet API's and the node's client certificate. */
  servingCertificate(): string | undefined;
  clientCertificate(): string | undefined;
  /** The link to a target on another machine. */
  readonly link: { trouble(): unknown; losses(): number } | undefined;
  /** Whether the API server reaches the kubelet API; undefined if not checked or not known yet. */
  reachable(): boolean | undefined;
}

export interface PodWorkerState {
  readonly uid: string;
  readonly phase: "syncing" | "terminating" | "terminated" | "finished";
  readonly pod: Pod | undefined;
}

/** Gauges that are read from the node at each scrape. @param view undefined until the node runs. */
export function viewMetrics(metrics: Metrics, view: () => NodeGauges | undefined, clock: Clock): void {
  metrics.gauge("kubelet_running_pods", "Pods with a ready sandbox.", {
    values: () => {
      const all = view()?.podCache.list() ?? [];
      return [[{}, all.filter(({ sandboxes }) => sandboxes.some(isReady)).length]];
    },
  });
  metrics.gauge("kubelet_running_containers", "Containers in the runtime, by state.", {
    labels: ["container_state"],
    values: () => counted(containerStates(view()), (state) => ({ container_state: state }), ["running"]),
  });
  podGauges(metrics, view);
  metrics.gauge("volume_manager_total_volumes", "Volumes, desired and ready, by plugin.", {
    labels: ["plugin_name", "state"],
    values: () => volumeCounts(view()),
  });
  metrics.gauge("kubelet_podcertificate_states", "Certificates in projected volumes, by signer and state.", {
    labels: ["signer_name", "state"],
    values: () => {
      const keys = (view()?.podCertificates() ?? []).map(({ signerName, state }) => `${signerName}\n${state}`);
      return counted(keys, (key) => {
        const [signer_name = "", state = ""] = key.split("\n");
        return { signer_name, state };
      });
    },
  });
  metrics.gauge("kubelet_cgroup_version", "cgroup version of the target.", {
    values: () => present(view()?.cgroupVersion),
  });
  metrics.gauge(
    "kubelet_certificate_manager_server_ttl_seconds",
    "Remaining lifetime of the kubelet API's certificate, in seconds.",
    {
      values: () => [[{}, secondsLeft(view()?.servingCertificate(), clock)]],
    },
  );
  metrics.gauge(
    "kubelet_certificate_manager_client_ttl_seconds",
    "Remaining lifetime of the node's client certificate, in seconds; +Inf without one.",
    { values: () => [[{}, secondsLeft(view()?.clientCertificate(), clock)]] },
  );
  ownGauges(metrics, view);
}

/** Creates graftlet's own gauges; most are about the connection to the target, which a kubelet does not need. */
function ownGauges(metrics: Metrics, view: () => NodeGauges | undefined): void {
  const flag = (holds: boolean | undefined) => present(holds === undefined ? undefined : Number(holds));
  metrics.gauge("graftlet_link_up", "1 while the remote target is reachable.", {
    values: () => {
      const link = view()?.link;
      return flag(link && link.trouble() === undefined);
    },
  });
  metrics.gauge("graftlet_kubelet_reachable", "1 while the API server reaches the kubelet API.", {
    values: () => flag(view()?.reachable()),
  });
  metrics.gauge(
    "graftlet_placeholder_pods",
    "Pods shown as Ready that do not run here, by DaemonSet; all DaemonSets beyond the first 100 share one series without labels.",
    { labels: ["namespace", "daemonset"], values: () => placeholderSeries(view()?.placeholders() ?? []) },
  );
  metrics.total("graftlet_link_losses_total", "Lost connections to the target.", () => view()?.link?.losses() ?? 0);
}

/** Maximum number of DaemonSets with a separate series. */
const maxDaemonSets = 100;

function placeholderSeries(counts: readonly PlaceholderCount[]) {
  const series = counts
    .slice(0, maxDaemonSets)
    .map(({ namespace, daemonSet, pods }) => [{ namespace, daemonset: daemonSet }, pods] as const);
  const others = counts.slice(maxDaemonSets).reduce((sum, { pods }) => sum + pods, 0);
  return others === 0 ? series : [...series, [{ namespace: "", daemonset: "" }, others] as const];
}

/** Creates the gauges of desired pods and of the progress of their workers. */
function podGauges(metrics: Metrics, view: () => NodeGauges | undefined): void {
  const wanted = () => view()?.desired.list() ?? [];
  const byStatic = (pods: readonly Pod[]) => {
    const count = pods.filter(isStaticPod).length;
    return [[{ static: "" }, pods.length - count] as const, [{ static: "true" }, count] as const];
  };
  metrics.gauge("kubelet_desired_pods", "Desired pods of this node.", {
    labels: ["static"],
    values: () => byStatic(wanted()),
  });
  metrics.gauge("kubelet_active_pods", "Pods that use resources of this node.", {
    labels: ["static"],
    values: () => {
      const active = new Set((view()?.workers() ?? []).filter(isActive).map(({ uid }) => uid));
      return byStatic(wanted().filter(({ metadata }) => active.has(metadata.uid)));
    },
  });
  metrics.gauge("kubelet_mirror_pods", "Mirror pods in the API server.", {
    values: () => present((view()?.mirrors() ?? []).length),
  });
  metrics.gauge("kubelet_managed_ephemeral_containers", "Ephemeral containers of this node's pods.", {
    values: () => {
      const counts = wanted().map(({ spec }) => spec.ephemeralContainers?.length ?? 0);
      return [[{}, counts.reduce((sum, count) => sum + count, 0)]];
    },
  });
  metrics.gauge("kubelet_working_pods", "Pods with a worker, by lifecycle and configuration source.", {
    labels: ["lifecycle", "config", "static"],
    values: () => workingPods(view()),
  });
}

const isReady = ({ state }: { readonly state: PodSandboxState }) => state === PodSandboxState.SANDBOX_READY;
const isActive = ({ phase }: PodWorkerState) => phase === "syncing" || phase === "terminating";

const stateNames: Readonly<Record<ContainerState, string>> = {
  [ContainerState.CONTAINER_CREATED]: "created",
  [ContainerState.CONTAINER_RUNNING]: "running",
  [ContainerState.CONTAINER_EXITED]: "exited",
  [ContainerState.CONTAINER_UNKNOWN]: "unknown",
  [ContainerState.UNRECOGNIZED]: "unknown",
};

function containerStates(view: NodeGauges | undefined): readonly string[] {
  return (view?.podCache.list() ?? []).flatMap(({ containers }) => containers.map(({ state }) => stateNames[state]));
}

const lifecycles = { syncing: "sync", terminating: "terminating", terminated: "terminated", finished: "terminated" };
const configs = [
  ["desired", ""],
  ["desired", "true"],
  ["orphan", ""],
  ["orphan", "true"],
  ["runtime_only", "unknown"],
] as const;

function workingPods(view: NodeGauges | undefined) {
  const keyOf = (lifecycle: string, config: string, isStatic: string) => `${lifecycle} ${config} ${isStatic}`;
  const counts = new Map<string, number>();
  for (const { uid, phase, pod } of view?.workers() ?? []) {
    const config = pod === undefined ? "runtime_only" : view?.desired.get(uid) ? "desired" : "orphan";
    const isStatic = pod === undefined ? "unknown" : isStaticPod(pod) ? "true" : "";
    const key = keyOf(lifecycles[phase], config, isStatic);
    counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  return [...new Set(Object.values(lifecycles))].flatMap((lifecycle) =>
    configs.map(
      ([config, isStatic]) =>
        [{ lifecycle, config, static: isStatic }, counts.get(keyOf(lifecycle, config, isStatic)) ?? 0] as const,
    ),
  );
}

/** Desired and ready volumes of pods with a worker, by plugin. Image volumes are left out: the runtime mounts them. */
function volumeCounts(view: NodeGauges | undefined) {
  const states = { desired_state_of_world: [] as string[], actual_state_of_world: [] as string[] };
  for (const { uid, phase, pod } of view?.workers() ?? []) {
    const ready = view?.mounted(uid);
    for (const volume of pod?.spec.volumes ?? []) {
      if (volume.image) continue;
      const plugin = (place: MountedVolume | undefined) => place?.persistent?.plugin ?? volumePlugin(volume);
      if (phase === "syncing") states.desired_state_of_world.push(plugin(ready?.get(volume.name)));
      const mounted = ready?.get(volume.name);
      if (mounted) states.actual_state_of_world.push(plugin(mounted));
    }
  }
  return Object.entries(states).flatMap(([state, plugins]) =>
    counted(plugins, (plugin) => ({ plugin_name: plugin, state })),
  );
}

/** Counts the occurrences of each name, as series. @param always names that are shown even without occurrences. */
function counted<L>(
  names: readonly string[],
  labels: (name: string) => L,
  always: readonly string[] = [],
): (readonly [L, number])[] {
  const counts = new Map<string, number>(always.map((name) => [name, 0]));
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  return [...counts].map(([name, count]) => [labels(name), count] as const);
}

function present(value: number | undefined): (readonly [object, number])[] {
  return value === undefined ? [] : [[{}, value]];
}

/** Seconds until a certificate expires. An unreadable one counts as expired, so that an error does not affect other metrics. */
function secondsLeft(pem: string | undefined, clock: Clock): number {
  if (pem === undefined) return Number.POSITIVE_INFINITY;
  try {
    return Math.trunc((new X509Certificate(pem).validToDate.getTime() - clock.now()) / 1000);
  } catch {
    return 0;
  }
}
