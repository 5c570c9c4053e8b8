import type { Scenario } from "../bench-lab.ts";
import { standing } from "../moments.ts";

/** Commands of a turn. */
const count = 50;
export const execTarget = "exec-target";

/** `kubectl exec POD -- true`, one after another: the whole of each command. */
export const exec: Scenario = async ({ cluster, pods, ledger }, { who, round }) => {
  await standing(pods, execTarget, { nodeName: cluster.nodeName });
  const once = () => cluster.mustKubectl(["exec", execTarget, "--", "true"]);
  await once();
  for (let turn = 0; turn < count; turn += 1) {
    const began = performance.now();
    await once();
    ledger.note("exec", who, round, performance.now() - began);
  }
};
