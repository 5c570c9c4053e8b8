import { type Fault, unit } from "./fault.ts";
import { call, drop, operand } from "./mistake.ts";

/** Exclusive CPUs. */
export const cpus: readonly Fault[] = [
  {
    name: "exclusive-cpus-of-sidecars",
    in: "createPodAssigner",
    mistake: drop(operand("&&", "isSidecar")),
    breaks: "The main containers of a pod get the exclusive CPUs of its sidecars.",
    assertion:
      '"containers reuse the CPUs of init containers before them; sidecars keep theirs": Expected values to be strictly deep-equal',
    foundBy: [unit("cpus/static-policy")],
  },
  {
    name: "shared-cpus-after-release",
    in: "createCpuManager.release",
    mistake: drop(call("saveLater")),
    breaks:
      "Containers without exclusive CPUs get those of an ended pod back after ten seconds, and a restart loses them.",
    assertion:
      '"moves running containers off CPUs that become exclusive, and back when these are released": Expected values to be strictly deep-equal',
    foundBy: [unit("cpus/manager")],
  },
];
