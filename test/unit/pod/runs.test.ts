import assert from "node:assert/strict";
import { test } from "node:test";
import { ContainerState } from "../../../src/gen/cri.ts";
import { containerNameOf, newestRun, runsOf } from "../../../src/pod/runs.ts";
import { aContainer, aSandbox, aStatus, observe } from "../../fakes/pods.ts";

const { CONTAINER_EXITED: exited, CONTAINER_RUNNING: running } = ContainerState;

test("runs are matched by container name, newest first", () => {
  const ofC = [running, exited, exited].map((state) => aStatus(aContainer("c"), state));
  const [oldest, older, newest] = ofC;
  const seen = observe([aSandbox()], [...ofC, aStatus(aContainer("d"), running)]);
  assert.deepEqual(runsOf(seen, "c"), [newest, older, oldest]);
  assert.equal(newestRun(seen, "c"), newest);
  assert.equal(
    newestRun(seen, "c", ({ state }) => state === running),
    oldest,
  );
  assert.deepEqual(
    [newestRun(seen, "e"), newestRun(undefined, "c"), runsOf(undefined, "c")],
    [undefined, undefined, []],
  );
});

test("a container without the label is matched by its name in the runtime", () => {
  const status = aStatus(aContainer("c"), running, { labels: {} });
  assert.equal(containerNameOf(status), "c");
  assert.equal(containerNameOf({ labels: {}, metadata: undefined }), "");
});
