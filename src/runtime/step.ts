import type { ContainerStatus } from "../gen/cri.ts";
import type { ContainerSort } from "../measures.ts";
import type { Container } from "../objects.ts";
import type { ContainerResize } from "./plan-resize.ts";
import type { PlannedKill } from "./planned-kill.ts";

/** The kinds of step, with what each says. */
interface Steps {
  /** Stops every container, then the sandboxes: a new sandbox takes their place, or nothing is left to run. */
  killPod: { readonly sandboxChanged: boolean };
  /** Stops a container. */
  killContainer: PlannedKill;
  /** Kills a container without grace where it has not ended, and removes it: the pod starts anew. */
  resetContainer: { readonly status: ContainerStatus };
  /** Removes an ended init container that no status is worked out from any more. */
  removeContainer: { readonly status: ContainerStatus };
  /** Changes CPU and memory of what runs. */
  resize: {
    readonly containers: readonly ContainerResize[];
    /** The pod as a whole changes, for itself or for a container that starts anew with other resources. */
    readonly wholePod: boolean;
  };
  /** Makes the sandbox that the containers after it go into. */
  runSandbox: { readonly attempt: number };
  /** Has the containers after it go into the sandbox that is there. */
  useSandbox: { readonly sandboxId: string; readonly attempt: number };
  startContainer: {
    readonly container: Container;
    readonly sort: ContainerSort;
    /** The sandbox is made by the same pass. */
    readonly inNewSandbox: boolean;
  };
}

export type StepKind = keyof Steps;

/** One thing that a pass does to a pod's sandbox and containers. */
export type Step<Kind extends StepKind = StepKind> = {
  [Each in Kind]: { readonly do: Each } & Readonly<Steps[Each]>;
}[Kind];
