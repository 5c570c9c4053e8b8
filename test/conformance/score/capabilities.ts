import type { ListedTest } from "../list.ts";

/** What a node can do, as tests are about it: the first expression that matches a test's suite and name says which. */
const table: readonly (readonly [RegExp, string])[] = [
  [/In-tree Volumes \[Driver: nfs|NFS/, "storage: NFS"],
  [/In-tree Volumes \[Driver: (?:emptydir|hostPath)/, "storage: emptyDir and hostPath"],
  [/In-tree Volumes \[Driver: local|PersistentVolumes-local/, "storage: local"],
  [/CSI/, "storage: CSI"],
  [/\[sig-network\]/, "network"],
  [/\[sig-apps\] (?!.*RestartRules)/, "apps"],
  [/\[sig-cli\]/, "kubectl"],
  [/\[sig-scheduling\] (?!.*reemption)/, "scheduling"],
  [/InPlace Resize|InPlacePod/, "in-place resize"],
  [/\[DRA\]|DynamicResourceAllocation/, "DRA"],
  [/Eviction|PriorityPid|ImageGCNo|ImageGCTerminated|LocalStorageCapacityIsolation|SystemNodeCritical/, "eviction"],
  [/SeparateDisk/, "eviction"],
  [/POD Resources API|PodResourcesAPI/, "pod resources API"],
  [/Kubelet Pods API/, "pods API"],
  [/CPU Manager|Memory Manager|Topology Manager|CFS quota|cpumanager/, "CPU and memory managers"],
  [/HugePages|hugepages/i, "huge pages"],
  [/Pod Level Resources|PodLevelResources/, "pod-level resources"],
  [
    /MemoryQoS|Swap|NodeSwap|OOMKiller|oom-score|Container Manager|PodPidsLimit|PodOverhead/,
    "node allocatable and QoS",
  ],
  [/CriticalPod|Preemption/, "preemption"],
  [/GracefulNodeShutdown|node reboots|reboots should/, "shutdown and reboot"],
  [/Device Plugin/, "device plugins"],
  [/FileKeyRef|EnvFiles/, "env files"],
  [/RestartAllContainers|container restart policy|ContainerRestartRules/, "restart rules"],
  [/Container Restart|back-?off|restart.* backs off/i, "restart backoff"],
  [/ImageVolume/, "image volumes"],
  [/Pull Image|CriProxy|Credential|ImageID|GarbageCollect|pull image|private registry|\bimages?\b/i, "images"],
  [/SupplementalGroupsPolicy|fsgroup/i, "groups of a process"],
  [/HostUsers|UserNamespaces|user namespaces|ProcMount/i, "user namespaces"],
  [/AppArmor|[Ss]eccomp|Security Context|SecurityContext|Privileged|PodSecurity|NoNewPrivs|Sysctl/, "security context"],
  [/Containers Lifecycle|lifecycle hook|restartable init|sidecar|PreStop|PostStart/i, "lifecycle"],
  [/MirrorPod|StaticPod|StandaloneMode|static pod/i, "static pods"],
  [/LogRotation|log path|NodeLogQuery|container logs/i, "logs"],
  [/Summary API|ResourceMetrics|ContainerMetrics|Metrics|Resource-usage|Density|Performance/, "metrics and measures"],
  [/TLS|CAFile|certificate reload|NodeAuth|Authz/i, "kubelet's certificates and access"],
  [
    /Kubelet Config|Kubelet Endpoints|configz|OSArchLabel|Lock contention|Restart \[Serial\]|Unknown Pods/,
    "kubelet restart and config",
  ],
  [/kubelet restart/i, "kubelet restart and config"],
  [/\[sig-storage\]/, "storage: others"],
  [/Prob(?:e|ing)/, "probes"],
  [/\[sig-auth\]/, "auth"],
];

/** The capability that a test belongs to; `pods` where none is known. */
export function capabilityOf({ name }: Pick<ListedTest, "name">): string {
  return table.find(([expression]) => expression.test(name))?.[1] ?? "pods";
}
