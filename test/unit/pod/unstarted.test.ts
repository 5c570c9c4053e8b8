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
  ["containerd, cut off while it makes the task", failed("failed to create containerd task: context canceled"), "no"],
  [
    "containerd, cut off in the shim",
    failed("failed to create containerd task: failed to create shim task: context canceled: unknown"),
    "no",
  ],
  ["containerd, cut off before the task", failed("get container info: context canceled"), "no"],
  ["containerd, in a sandbox that has died", failed('sandbox container "abc" is not running'), "no"],
  [
    "containerd, whose task could not be made",
    failed("failed to create containerd task: failed to create shim task: OCI runtime create failed: exec: not found"),
    "no",
  ],
  [
    "containerd, cut off while it lets the process go",
    failed('failed to start containerd task "abc": context canceled: unknown'),
    "perhaps",
  ],
  [
    "containerd, whose words the container has added to",
    failed('failed to start containerd task "abc": context canceled: failed to create containerd task'),
    "perhaps",
  ],
  ["containerd, for a reason that is not known", failed('failed to start containerd task "abc": broken'), "yes"],
  [
    "containerd, of a container that ran",
    failed("failed to create containerd task: context canceled", { startedAt: 1n }),
    "yes",
  ],
  ["a container that ended by itself", aStatus(c, exited, { exitCode: 1, reason: "Error", startedAt: 1n }), "yes"],
  [
    "Docker, whose runtime could not make the container",
    failed("failed to create task for container: failed to create shim task: OCI runtime create failed: no such file", {
      reason: "ContainerCannotRun",
      startedAt: 1n,
    }),
    "no",
  ],
  ["Docker, of a container being removed", failed("", { reason: "ContainerCannotRun", startedAt: 1n }), "yes"],
];

for (const [what, run, ran] of records) {
  test(`the record of ${what} shows whether the container ran: ${ran}`, () => {
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
