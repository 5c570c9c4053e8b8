import type { PreemptionMeasures } from "../admission/preemption.ts";
import type { ContainerStatus, PodStatus } from "../objects.ts";
import { isTerminal } from "../pod/phase.ts";
import { isPlaceholder } from "../pod/placeholder.ts";
import type { StartMeasures } from "../runtime/start-container.ts";
import type { ContainerType } from "../runtime/step.ts";
import type { StatusMeasures } from "../status/writer.ts";
import type { OrphanMeasures } from "../sync/housekeeping.ts";
import type { WorkerMeasures } from "../sync/pod-worker.ts";
import type { SyncLoopMeasures } from "../sync/sync-loop.ts";
import type { PodStartup } from "./pod-startup.ts";
import { type Metrics, defaultBuckets } from "./registry.ts";

const startBuckets = [
  0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600,
];

/** Records pods as they pass through the stages. */
export interface PodMeasures extends PreemptionMeasures, SyncLoopMeasures, OrphanMeasures {
  readonly workers: WorkerMeasures;
}

/** Creates the metrics of the sync loop and pod workers, and of rejected, preempted and orphaned pods. */
export function podMetrics(metrics: Metrics, startup: PodStartup): PodMeasures {
  const passes = metrics.histogram(
    "kubelet_pod_worker_duration_seconds",
    "Duration of one sync of a pod, in seconds.",
    {
      buckets: defaultBuckets,
      labels: ["operation_type"],
    },
  );
  const beginnings = metrics.histogram(
    "kubelet_pod_worker_start_duration_seconds",
    "Time from first seeing a pod to its first sync, in seconds.",
    { buckets: defaultBuckets },
  );
  const sizes = metrics.histogram("kubelet_containers_per_pod_count", "Number of containers per pod.", {
    buckets: [1, 2, 4, 8, 16],
  });
  const rejections = metrics.counter("kubelet_admission_rejections_total", "Pods rejected at admission, by reason.", [
    "reason",
  ]);
  const preemptions = metrics.counter(
    "kubelet_preemptions",
    "Pods preempted by critical pods, by the resource that was short.",
    ["preemption_signal"],
  );
  const orphans = metrics.counter(
    "kubelet_orphaned_runtime_pods_total",
    "Pods found in the container runtime without a source or a worker.",
  );
  const restarts = metrics.counter(
    "kubelet_restarted_pods_total",
    "Pods deleted and recreated with the same UID. The API server gives each pod a new one.",
    ["static"],
  );
  restarts.add({ static: "" }, 0);
  restarts.add({ static: "true" }, 0);
  return {
    workers: {
      started({ metadata, spec }) {
        const ms = startup.sinceSeen(metadata.uid);
        if (ms !== undefined) beginnings.addMs({}, ms);
        sizes.add({}, spec.containers.length);
      },
      synced: (kind, ms) => passes.addMs({ operation_type: kind }, ms),
    },
    seen(pods) {
      for (const pod of pods) startup.seen(pod);
    },
    forget: startup.forget,
    rejected: (reason) => rejections.add({ reason: rejectionLabel(reason) }),
    preempted: (resource) => preemptions.add({ preemption_signal: resource }),
    orphanFound: () => orphans.add({}),
  };
}

/** The bounded set of known reasons; extended resources and taints would add arbitrary names. */
const knownReasons = new Set([
  "AppArmor",
  "PodOSSelectorNodeLabelDoesNotMatch",
  "PodOSNotSupported",
  "InvalidNodeInfo",
  "InitContainerRestartPolicyForbidden",
  "SupplementalGroupsPolicyNotSupported",
  "UnexpectedAdmissionError",
  "UnknownReason",
  "UnexpectedPredicateFailureType",
  "OutOfcpu",
  "OutOfmemory",
  "OutOfephemeral-storage",
  "OutOfpods",
  "PodLevelResourcesNotSupported",
  "PodFeatureUnsupported",
  "Evicted",
  "SysctlForbidden",
  "TopologyAffinityError",
  "NodeShutdown",
  "VolumeAttachmentLimitExceeded",
]);

function rejectionLabel(reason: string): string {
  if (knownReasons.has(reason)) return reason;
  return reason.startsWith("OutOf") ? "OutOfExtendedResources" : "Other";
}

/** Creates the metrics of sandbox and container starts. */
export function startMetrics(metrics: Metrics): StartMeasures {
  const pods = metrics.counter("kubelet_started_pods_total", "Attempted sandbox creations.");
  const podErrors = metrics.counter("kubelet_started_pods_errors_total", "Failed sandbox creations.");
  const namespaced = metrics.counter(
    "kubelet_started_user_namespaced_pods_total",
    "Attempted sandbox creations for pods with hostUsers: false.",
  );
  const namespacedErrors = metrics.counter(
    "kubelet_started_user_namespaced_pods_errors_total",
    "Failed starts of pods with hostUsers: false.",
  );
  const containers = metrics.counter("kubelet_started_containers_total", "Attempted container starts.", [
    "container_type",
  ]);
  const errors = metrics.counter(
    "kubelet_started_containers_errors_total",
    "Failed container starts, by the reason in the container's state.",
    ["container_type", "code"],
  );
  const images = metrics.counter("kubelet_image_volume_requested_total", "Image volumes requested by containers.");
  const outcomes = {
    mounted: metrics.counter("kubelet_image_volume_mounted_succeed_total", "Successful mounts of image volumes."),
    failed: metrics.counter("kubelet_image_volume_mounted_errors_total", "Failed mounts of image volumes."),
  };
  return {
    podStarting(inUserNamespace) {
      pods.add({});
      if (inUserNamespace) namespaced.add({});
    },
    podFailed: () => podErrors.add({}),
    userNamespacedPodFailed: () => namespacedErrors.add({}),
    containerStarting: (sort) => containers.add({ container_type: sort }),
    containerFailed: (sort, reason) => errors.add({ container_type: sort, code: reason }),
    imageVolumes(requested, places, outcome) {
      images.add({}, requested);
      outcomes[outcome].add({}, places);
    },
  };
}

/** Creates the metrics from pod statuses: terminated containers, and start durations as seen by the API server. */
export function statusMetrics(metrics: Metrics, startup: PodStartup): StatusMeasures {
  const ended = metrics.counter("kubelet_terminated_containers_total", "Terminated containers.", [
    "container_type",
    "exit_code",
    "reason",
  ]);
  const delays = metrics.histogram(
    "kubelet_pod_status_sync_duration_seconds",
    "Time from a change in a pod's status until the API server has it, in seconds.",
    { buckets: [0.01, 0.05, 0.1, 0.5, 1, 5, 10, 20, 30, 45, 60] },
  );
  const running = metrics.histogram(
    "kubelet_pod_start_duration_seconds",
    "Time from first seeing a pod to its first status, and to its phase Running, in seconds.",
    { buckets: startBuckets },
  );
  const own = metrics.histogram(
    "kubelet_pod_start_sli_duration_seconds",
    "Time from a pod's creation until the API server shows all its containers as started, without image pulls and init containers, in seconds.",
    { buckets: startBuckets },
  );
  const total = metrics.histogram(
    "kubelet_pod_start_total_duration_seconds",
    "Time from a pod's creation until the API server shows all its containers as started, in seconds.",
    { buckets: startBuckets },
  );
  let firstSeconds: number | undefined;
  metrics.gauge(
    "kubelet_first_network_pod_start_sli_duration_seconds",
    "Value of kubelet_pod_start_sli_duration_seconds for the first pod with its own network; 0 until then.",
    { values: () => [[{}, firstSeconds ?? 0]] },
  );
  return {
    changed(pod, before, after) {
      for (const [sort, { state }] of newlyEnded(before, after)) {
        const { exitCode = 0, reason = "" } = state?.terminated ?? {};
        ended.add({ container_type: sort, exit_code: String(exitCode), reason });
      }
      const { uid } = pod.metadata;
      const ms = startup.sinceSeen(uid);
      const isFirst = startup.isFirstStatus(uid);
      if (ms !== undefined && !isPlaceholder(after) && (isFirst ? !isTerminal(after.phase) : begins(before, after)))
        running.addMs({}, ms);
    },
    written(pod, ms) {
      delays.addMs({}, ms);
      const start = startup.shown(pod);
      if (!start) return;
      total.addMs({}, start.totalMs);
      if (start.ownMs === undefined) return;
      own.addMs({}, start.ownMs);
      if (!pod.spec.hostNetwork) firstSeconds ??= start.ownMs / 1000;
    },
  };
}

const begins = (before: PodStatus | undefined, after: PodStatus) =>
  (before?.phase ?? "Pending") === "Pending" && after.phase === "Running";

const lists = [
  ["container", "containerStatuses"],
  ["init_container", "initContainerStatuses"],
  ["ephemeral_container", "ephemeralContainerStatuses"],
] as const satisfies readonly (readonly [ContainerType, keyof PodStatus])[];

function newlyEnded(
  before: PodStatus | undefined,
  after: PodStatus,
): readonly (readonly [ContainerType, ContainerStatus])[] {
  return lists.flatMap(([sort, list]) => {
    const old = new Map((before?.[list] ?? []).map((status) => [status.name, status]));
    return (after[list] ?? [])
      .filter(({ name, state }) => state?.terminated && !old.get(name)?.state?.terminated)
      .map((status) => [sort, status] as const);
  });
}
