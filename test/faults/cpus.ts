import { type Fault, unit } from "./fault.ts";

/** Exclusive CPUs. */
export const cpus: readonly Fault[] = [
  {
    name: "exclusive-cpus-of-sidecars",
    file: "src/cpus/static-policy.ts",
    text: "initContainers.includes(container) && !isSidecar(container)",
    becomes: "initContainers.includes(container)",
    breaks: "The main containers of a pod get the exclusive CPUs of its sidecars.",
    assertion:
      '"init containers hand their CPUs on; those of sidecars stay theirs": Expected values to be strictly deep-equal',
    foundBy: [unit("cpus/static-policy")],
  },
  {
    name: "shared-cpus-after-release",
    file: "src/cpus/manager.ts",
    text: "if (assigned.delete(uid)) saveLater();",
    becomes: "assigned.delete(uid);",
    breaks:
      "Containers without exclusive CPUs get those of an ended pod back after ten seconds, and a restart loses them.",
    assertion:
      '"moves running containers off CPUs that become exclusive, and back when these are released": Expected values to be strictly deep-equal',
    foundBy: [unit("cpus/manager")],
  },
];
