import type { ContainerStatus } from "../gen/cri.ts";
import type { Container } from "../objects.ts";
import type { ContainerResize } from "./plan-resize.ts";
import type { PlannedKill } from "./planned-kill.ts";

/** Container type, as in metrics. */
export type ContainerType = "container" | "init_container" | "ephemeral_container";

interface Steps {
  /** Stops all containers, then the sandboxes: a new sandbox follows, or nothing is left to run. */
  killPod: { readonly sandboxChanged: boolean };
  killContainer: PlannedKill;
  /** Kills a container without grace period if it is running, and removes it: all containers of the pod restart. */
  resetContainer: { readonly status: ContainerStatus };
  /** Removes a dead init container that no status is derived from. */
  removeContainer: { readonly status: ContainerStatus };
  /** Changes CPU and memory of running containers. */
  resize: {
    readonly containers: readonly ContainerResize[];
    /** The pod's cgroup changes too: for pod-level resources, or for a container that restarts with new ones. */
    readonly wholePod: boolean;
  };
  /** Creates the sandbox for the containers that start after it. */
  runSandbox: { readonly attempt: number };
  /** Selects the existing sandbox for the containers that start after it. */
  useSandbox: { readonly sandboxId: string; readonly attempt: number };
  startContainer: {
    readonly container: Container;
    readonly containerType: ContainerType;
    /** The same pass creates the sandbox. */
    readonly inNewSandbox: boolean;
  };
}

export type StepKind = keyof Steps;

/** One action of a pass on a pod's sandbox or containers. */
export type Step<Kind extends StepKind = StepKind> = {
  [Each in Kind]: { readonly kind: Each } & Readonly<Steps[Each]>;
}[Kind];
