import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { type Lab, startLab } from "../harness/lab.ts";
import { shell, statusOf } from "../harness/pods.ts";

describe("stop signals of containers", () => {
  let lab: Lab;
  before(async () => {
    lab = await startLab("stop-signals", { config: { featureGates: { ContainerStopSignals: true } } });
  });
  after(() => lab?.[Symbol.asyncDispose]());

  test("a container is stopped with the signal in its spec, others with SIGTERM, and the status names the signal", async () => {
    const { pods } = lab;
    const script = "trap 'exit 41' USR1; trap 'exit 42' TERM; while :; do sleep 0.1; done";
    await pods.create("signalled", {
      os: { name: "linux" },
      terminationGracePeriodSeconds: 30,
      restartPolicy: "Never",
      containers: [
        shell(script, { name: "asked", lifecycle: { stopSignal: "SIGUSR1" } }),
        shell(script, { name: "plain" }),
      ],
    });
    const running = await pods.ready("signalled");
    assert.equal(statusOf(running, "asked")?.stopSignal, "SIGUSR1");
    assert.equal(statusOf(running, "plain")?.stopSignal, "SIGTERM");
    const gone = pods.gone("signalled");
    await pods.remove("signalled");
    const { last } = await gone;
    assert.equal(statusOf(last, "asked")?.state?.terminated?.exitCode, 41);
    assert.equal(statusOf(last, "plain")?.state?.terminated?.exitCode, 42);
  });
});
