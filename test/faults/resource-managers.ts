import { type Fault, unit } from "./fault.ts";
import { always, become, call, condition, drop, never, operand, result } from "./mistake.ts";

/** CPUs, memory, NUMA nodes, devices of DRA and user IDs of pods. */
export const resourceManagers: readonly Fault[] = [
  {
    name: "exclusive-cpus-of-sidecars",
    in: "createPodAssigner",
    mistake: drop(operand("&&", "isSidecar")),
    breaks: "The main containers of a pod get the exclusive CPUs of its sidecars.",
    assertion:
      '"containers reuse the CPUs of earlier init containers, but not those of sidecars": Expected values to be strictly deep-equal',
    foundBy: [unit("cpus/static-policy")],
  },
  {
    name: "shared-cpus-after-release",
    in: "createCpuManager.release",
    mistake: drop(call("saveLater")),
    breaks:
      "Containers without exclusive CPUs regain the CPUs of an ended pod only after ten seconds, and a restart forgets the release.",
    assertion:
      '"moves running containers off CPUs that become exclusive, and back once they are released": Expected values to be strictly deep-equal',
    foundBy: [unit("cpus/manager")],
  },
  {
    name: "damaged-manager-state",
    in: "isIntact",
    mistake: become(result("checksum"), "true"),
    breaks: "A pod gets another pod's CPUs after a restart, because a corrupt state file is used.",
    assertion: '"a corrupt file counts as no state": {"policyName":"static"',
    foundBy: [unit("cpus/state-file"), unit("memory-manager/state-file")],
  },
  {
    name: "pod-cpus-of-sidecars",
    in: "dividePod",
    mistake: drop(operand("&&", "isSidecar")),
    breaks: "The containers of a pod with pod-level resources get the exclusive CPUs of its sidecars.",
    assertion:
      '"divides a pod\'s CPUs among its containers, which reuse the CPUs of init containers but not those of sidecars": Expected values to be strictly deep-equal',
    foundBy: [unit("cpus/static-policy")],
  },
  {
    name: "memory-of-ended-init-containers",
    in: "releaseEndedInit",
    mistake: always(condition("wholePod")),
    breaks: "Memory of init containers that have ended stays unused until their pod ends.",
    assertion:
      '"memory of init containers becomes available to other pods once the containers after them start": Expected values to be strictly equal',
    foundBy: [unit("memory-manager/manager")],
  },
  {
    name: "scope-of-alignment",
    in: "allocateAligned",
    mistake: never(condition("scope")),
    breaks: "With topologyManagerScope pod, the containers of a pod get resources of different NUMA nodes.",
    assertion:
      '"with scope pod, all containers get their resources from the same NUMA node": Expected values to be strictly deep-equal',
    foundBy: [unit("topology/manager")],
  },
  {
    name: "user-ids-of-two-pods",
    in: "createIdRanges.allocate",
    mistake: never(condition("has")),
    breaks: "Two pods with user namespaces have the same user IDs on the machine.",
    assertion:
      '"fails with the kubelet\'s message once all ranges are taken": Expected values to be strictly deep-equal',
    foundBy: [unit("user-namespaces/id-ranges")],
  },
  {
    name: "claim-of-two-pods",
    in: "unprepareClaims",
    mistake: become(operand("===", "size"), "1"),
    breaks: "A DRA driver takes a device back when the first of two pods that share it ends.",
    assertion: '"prepares a shared claim once, and unprepares it after the last pod": the second pod uses it',
    foundBy: [unit("dra/preparation")],
  },
];
