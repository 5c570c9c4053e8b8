import type { Step } from "../../../src/runtime/step.ts";
import { containerNameOf } from "../../../src/pod/runs.ts";

const sorts = { container: "", init_container: " init", ephemeral_container: " ephemeral" } as const;

/** Steps as readable lines, in order. */
export function stepLines(steps: readonly Step[]): readonly string[] {
  return steps.map(stepLine);
}

function stepLine(step: Step): string {
  switch (step.kind) {
    case "killPod":
      return step.sandboxChanged ? "kill pod: sandbox changed" : "kill pod";
    case "killContainer": {
      const { status, message, graceSeconds } = step;
      return `kill ${containerNameOf(status)}: ${message}${graceSeconds === undefined ? "" : ` (${graceSeconds} s)`}`;
    }
    case "resetContainer":
      return `reset ${step.status.id}`;
    case "removeContainer":
      return `remove ${step.status.id}`;
    case "resize": {
      const names = step.containers.map(({ container: { name } }) => name);
      return ["resize", ...names, ...(step.wholePod ? ["pod"] : [])].join(" ");
    }
    case "runSandbox":
      return `run sandbox ${step.attempt}`;
    case "useSandbox":
      return `use sandbox ${step.attempt}`;
    case "startContainer":
      return `start${sorts[step.containerType]} ${step.container.name}${step.inNewSandbox ? " in it" : ""}`;
  }
}
