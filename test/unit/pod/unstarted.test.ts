import assert from "node:assert/strict";
import { test } from "node:test";
import { ContainerState, type ContainerStatus } from "../../../src/gen/cri.ts";
import { mayHaveRun, neverRan, reportedTerminations, resetFailedStarts } from "../../../src/pod/failed-starts.ts";
import { aContainer, aSandbox, aStatus, observe } from "../../fakes/pods.ts";

const { CONTAINER_EXITED: exited, CONTAINER_CREATED: created } = ContainerState;
const c = aContainer("c");
const failed = (message: string, more: Partial<ContainerStatus> = {}) =>
  aStatus(c, exited, { exitCode: 128, reason: "StartError", message, finishedAt: 1n, ...more });

const records: readonly (readonly [what: string, run: ContainerStatus, ran: "no" | "perhaps" | "yes"])[] = [
  [
    "a start that was aborted while containerd created the task",
    failed("failed to create containerd task: context canceled"),
    "no",
  ],
  [
    "a start that was aborted in containerd's shim",
    failed("failed to create containerd task: failed to create shim task: context canceled: unknown"),
    "no",
  ],
  ["a start that was aborted before containerd created the task", failed("get container info: context canceled"), "no"],
  ["a start in a dead sandbox of containerd", failed('sandbox container "abc" is not running'), "no"],
  [
    "a start whose task containerd could not create",
    failed("failed to create containerd task: failed to create shim task: OCI runtime create failed: exec: not found"),
    "no",
  ],
  [
    "a start that was aborted while containerd started the process",
    failed('failed to start containerd task "abc": context canceled: unknown'),
    "perhaps",
  ],
  [
    "a start error whose text the container has extended",
    failed('failed to start containerd task "abc": context canceled: failed to create containerd task'),
    "perhaps",
  ],
  [
    "a start that containerd failed for an unknown reason",
    failed('failed to start containerd task "abc": broken'),
    "yes",
  ],
  [
    "a start error with a start time",
    failed("failed to create containerd task: context canceled", { startedAt: 1n }),
    "yes",
  ],
  ["an ordinary exit", aStatus(c, exited, { exitCode: 1, reason: "Error", startedAt: 1n }), "yes"],
  [
    "a start whose container Docker's runtime could not create",
    failed("failed to create task for container: failed to create shim task: OCI runtime create failed: no such file", {
      reason: "ContainerCannotRun",
      startedAt: 1n,
    }),
    "no",
  ],
  [
    "a start that failed in Docker without a message",
    failed("", { reason: "ContainerCannotRun", startedAt: 1n }),
    "yes",
  ],
];

const conclusions = { no: "did not run", perhaps: "may have run", yes: "ran" } as const;

for (const [what, run, ran] of records) {
  test(`concludes from ${what} that the container ${conclusions[ran]}`, () => {
    assert.deepEqual([neverRan(run), mayHaveRun(run)], [ran === "no", ran === "perhaps"]);
  });
}

test("an unnoticed failed start counts as never started; a reported one stays failed", () => {
  const [cut, told] = [failed("failed to create containerd task: context canceled"), failed("sandbox is gone")];
  const seen = observe([aSandbox()], [cut, told]);
  const read = resetFailedStarts(seen, (id) => id === told.id);
  assert.deepEqual(
    new Map(read.containers.map(({ id, state }) => [id, state])),
    new Map([
      [cut.id, created],
      [told.id, exited],
    ]),
  );
  const ended = observe([aSandbox()], [aStatus(c, exited)]);
  assert.equal(
    resetFailedStarts(ended, () => false),
    ended,
    "nothing is copied where there is nothing to change",
  );
});

test("reportedEnds covers containers of each kind, current and last state", () => {
  const end = (id: string) => ({ terminated: { exitCode: 1, containerID: `containerd://${id}` } });
  const of = (state: object, lastState: object = {}) => ({
    name: "c",
    image: "",
    imageID: "",
    ready: false,
    restartCount: 0,
    state,
    lastState,
  });
  const status = {
    initContainerStatuses: [of(end("a"))],
    containerStatuses: [of({ waiting: { reason: "CrashLoopBackOff" } }, end("b")), of({ running: {} })],
    ephemeralContainerStatuses: [of(end("d"), end("e"))],
  };
  assert.deepEqual(reportedTerminations(status), ["a", "b", "d", "e"]);
  assert.deepEqual(reportedTerminations(undefined), []);
});
