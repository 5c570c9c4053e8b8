import assert from "node:assert/strict";
import { test } from "node:test";
import { PodSandbox, PodSandboxState } from "../../../src/gen/cri.ts";
import { observePod } from "../../../src/pleg/observe.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { aSandbox } from "../../fakes/pods.ts";
import { fakeRuntime } from "../../fakes/runtime.ts";
import { never } from "../../fakes/signals.ts";

test("sorts sandboxes by attempt, even if the machine's clock was set back", async () => {
  const { SANDBOX_NOTREADY: ended, SANDBOX_READY: ready } = PodSandboxState;
  const attempt = (id: string, of: number, createdAt: bigint, state: PodSandboxState = ended) =>
    aSandbox({ id, createdAt, state, metadata: { name: "p", namespace: "default", uid: "uid-1", attempt: of } });
  const sandboxes = [
    attempt("b", 0, 900n),
    attempt("now", 2, 100n, ready),
    attempt("c", 1, 800n),
    attempt("a", 1, 800n),
  ];
  const runtime = {
    podSandboxStatus: async (id: string) => ({
      status: sandboxes.find((each) => each.id === id),
      info: {},
      containersStatuses: [],
      timestamp: 0n,
    }),
    containerStatus: () => Promise.reject(new Error("no container is listed")),
  };
  const listing = {
    uid: "uid-1",
    sandboxes: sandboxes.map(({ id, state }) => PodSandbox.fromPartial({ id, state })),
    containers: [],
    listedAt: 0,
  };
  const deps = {
    runtime: { ...fakeRuntime({ clock: fakeClock() }), ...runtime },
    clock: fakeClock(),
    ownerLabels: {},
    terminationMessage: async () => "",
    writtenMessage: async () => undefined,
  };
  const seen = await observePod(deps, listing, never);
  assert.deepEqual([seen.sandboxes.map(({ id }) => id), seen.ips], [["now", "a", "c", "b"], ["10.0.0.2"]]);
});
