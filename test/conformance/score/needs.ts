import type { ListedTest } from "../list.ts";

/** What a test needs that not every machine has, by its suite and name or by what it said when it did not pass. */
const needs: readonly (readonly [RegExp, string])[] = [
  [/MemoryQoS|cgroup ?v[12]|cgroups v2|KubeletPSI|unified cgroup/i, "cgroup v2"],
  [/oom_score_adj value 0 not equal|oom-score-adj should be -9/, "CAP_SYS_RESOURCE"],
  [/Driver: nfs|NFS/, "NFS"],
  [/Swap|NodeSwap/, "swap"],
  [/NUMA|numa/, "NUMA nodes"],
  [/HugePages|hugepages|hugepage/i, "huge pages"],
  [/AppArmor/i, "AppArmor"],
  [/SELinux/i, "SELinux"],
  [/GracefulNodeShutdown|node reboots/, "systemd-logind"],
  [/sctp/i, "SCTP"],
  [
    /(?:at least|enough|more than|requires?) .*cpus?|CPU Manager .* CPUs|SMT|insufficient cpu|Skipping CPU|CPU capacity </i,
    "more processors",
  ],
  [/(?:at least|Requires|require|need).{0,20} (?:two|2|3) .*nodes|between nodes|multiple nodes/i, "several nodes"],
  [
    /CRI runtime version|recursive read-only|runtime .*does not support|user namespaces? .*support|SupplementalGroupsPolicy/i,
    "a newer runtime",
  ],
  [/XFS|quota monitoring|LSCIQuotaMonitoring/, "a file system with quotas"],
  [/ErrImagePull|ImagePullBackOff|failed to pull|no such image/i, "images that are not built here"],
];

/** What a test that did not pass needs of a machine; undefined where that is not known. */
export function needOf({ name }: Pick<ListedTest, "name">, says: string): string | undefined {
  return needs.find(([expression]) => expression.test(`${name}\n${says}`))?.[1];
}
