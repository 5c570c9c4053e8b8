import { after, before } from "node:test";
import { containerdUnderTest } from "../harness/containerd-version.ts";
import { type Lab, startLab } from "../harness/lab.ts";
import { hasDocker, isRemote, providerUnderTest } from "../harness/runtime-daemon.ts";
import { attachTests } from "./kubectl/attach.ts";
import { breakTests } from "./kubectl/breaks.ts";
import { boundTests } from "./kubectl/bounds.ts";
import { execTests } from "./kubectl/exec.ts";
import { logTests } from "./kubectl/logs.ts";
import { portForwardTests } from "./kubectl/port-forward.ts";
import { transferTests } from "./kubectl/transfer.ts";
import { vanishTests } from "./kubectl/vanish.ts";
import { whole } from "../matrix.ts";

/** The kubelet API as users meet it: the real kubectl, through the real API server. */
let running: Lab | undefined;
const lab = (): Lab => {
  if (!running) throw new Error("the lab is not up");
  return running;
};
before(async () => {
  // A runtime that rotates logs itself takes the oldest away from a follower that cannot keep up with a GiB.
  running = await startLab("kubectl", { config: { containerLogMaxSize: "20Gi" } });
});
after(() => running?.[Symbol.asyncDispose]());

logTests(lab);
execTests(lab);
attachTests(lab);
portForwardTests(lab);
// Both containerds split streams in the same way: how much passes through graftlet is asked of one, and of the other in the full
// matrix.
if (containerdUnderTest() === "1.6" || whole) transferTests(lab);
vanishTests(lab);
// On Docker over SSH each forwarded connection has a session of the link, of which there are fewer.
if (!(isRemote(providerUnderTest()) && hasDocker(providerUnderTest()))) boundTests(lab);
// The last: it kills the runtime and the agent.
breakTests(lab);
