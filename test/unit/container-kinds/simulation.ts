import { ContainerState, type ContainerStatus, PodSandboxState, type PodSandboxStatus } from "../../../src/gen/cri.ts";
import type { Container } from "../../../src/objects.ts";
import type { RuntimePod } from "../../../src/pipeline.ts";
import { isSidecar } from "../../../src/pod/containers.ts";
import { containerNameOf } from "../../../src/pod/runs.ts";
import { planPod } from "../../../src/runtime/plan.ts";
import type { ContainerFacts } from "../../../src/runtime/planned-kill.ts";
import type { Step } from "../../../src/runtime/step.ts";
import { type Kind } from "../../container-kinds.ts";
import { type TestPod, aContainer, aPod, aSandbox, aStatus, observe } from "../../fakes/pods.ts";

const { CONTAINER_EXITED: exited, CONTAINER_RUNNING: running } = ContainerState;

/** A pod with a container of each kind, called as its kind.
 *  @param more fields of one of them. */
export function podOfAllKinds(
  kind?: Kind,
  more: Partial<Container> = {},
  spec: Partial<TestPod["spec"]> = {},
): TestPod {
  const container = (name: Kind, own: Partial<Container> = {}) =>
    aContainer(name, { ...own, ...(name === kind && more) });
  return aPod({
    initContainers: [container("init"), container("sidecar", { restartPolicy: "Always" })],
    containers: [container("main")],
    ephemeralContainers: [container("ephemeral")],
    ...spec,
  });
}

/** The container of a kind. */
export function containerOf({ spec }: TestPod, kind: Kind): Container {
  const all = [...(spec.initContainers ?? []), ...spec.containers, ...(spec.ephemeralContainers ?? [])];
  const found = all.find(({ name }) => name === kind);
  if (!found) throw new Error(`the pod has no container of the kind ${kind}`);
  return found;
}

export interface Simulation {
  /** Carries plans out until nothing is left to do. @returns the names of the containers that were started, in order. */
  settle(judged?: Partial<ContainerFacts>): readonly string[];
  observed(): RuntimePod;
  /** The machine or the sandbox stops, with all that runs in it. */
  loseSandbox(): void;
  /** Changes the newest run of a container. */
  change(name: string, to: Partial<ContainerStatus>): void;
  /** Has this init container run on from its next start on, and no other. */
  hold(name: Kind | undefined): void;
  /** Messages of the kills that were planned. */
  readonly kills: readonly string[];
}

/** Runs the plans of a pod on a runtime in memory. Init containers end as soon as they start, unless they are held up; ended
 *  containers cannot be removed, so that those of an earlier sandbox stay.
 *  @param holds a container that does not end by itself. */
export function simulate(pod: TestPod, holds?: Kind): Simulation {
  let held = holds;
  const sandboxes: PodSandboxStatus[] = [];
  let own: ContainerStatus[] = [];
  let earlier: ContainerStatus[] = [];
  const kills: string[] = [];
  const observed = () => observe(sandboxes, own, earlier);
  const replace = (id: string, to: Partial<ContainerStatus>) => {
    const changed = (run: ContainerStatus) => (run.id === id ? { ...run, ...to } : run);
    [own, earlier] = [own.map(changed), earlier.map(changed)];
  };
  const endAll = () => {
    for (const { id, state } of own) if (state === running) replace(id, { state: exited, exitCode: 137 });
  };
  const loseSandbox = () => {
    endAll();
    sandboxes.splice(
      0,
      sandboxes.length,
      ...sandboxes.map((one) => ({ ...one, state: PodSandboxState.SANDBOX_NOTREADY })),
    );
  };
  const take = (step: Step, started: string[]) => {
    if (step.kind === "runSandbox") {
      sandboxes.push(aSandbox({ metadata: { name: "p", namespace: "default", uid: "uid-1", attempt: step.attempt } }));
      [own, earlier] = [[], [...own, ...earlier]];
    } else if (step.kind === "killPod") loseSandbox();
    else if (step.kind === "killContainer") {
      kills.push(step.message);
      replace(step.status.id, { state: exited, exitCode: 137 });
    } else if (step.kind === "startContainer") {
      const { container, containerType } = step;
      started.push(container.name);
      own = own.filter(
        ({ state, ...run }) => state !== ContainerState.CONTAINER_CREATED || containerNameOf(run) !== container.name,
      );
      const ends = containerType === "init_container" && !isSidecar(container) && held !== container.name;
      own.push(aStatus(container, ends ? exited : running, { startedAt: 1n }));
    }
  };
  return {
    kills,
    observed,
    loseSandbox,
    hold: (name) => void (held = name),
    settle(judged) {
      const started: string[] = [];
      for (let pass = 0; pass < 20; pass++) {
        const steps = planPod(pod, observed(), judged);
        for (const step of steps) take(step, started);
        if (steps.length === 0 || steps.some((step) => step.kind === "killPod" && !step.sandboxChanged)) return started;
      }
      throw new Error(`the pod does not come to rest: ${started.join()}`);
    },
    change(name, to) {
      const newest = observed().containers.find((run) => containerNameOf(run) === name);
      if (newest) replace(newest.id, to);
    },
  };
}
