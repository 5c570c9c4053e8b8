import assert from "node:assert/strict";
import { test } from "node:test";
import { containerLifecycle, listedState } from "../../../../../providers/docker/container/state.ts";
import { ContainerState } from "../../../../../src/gen/cri.ts";
import { createdState, runningState } from "../inspection.ts";

const Created = "2026-01-01T00:00:01Z";
const second = (n: number) => BigInt(Date.UTC(2026, 0, 1, 0, 0, n)) * 1_000_000n;
const life = (change: Partial<typeof createdState>) =>
  containerLifecycle({ Created, State: { ...createdState, ...change } });
const ended = {
  Status: "exited",
  StartedAt: "2026-01-01T00:00:02Z",
  FinishedAt: "2026-01-01T00:00:03Z",
};

test("a created container has only its creation time", () => {
  const { state, createdAt, startedAt, finishedAt } = life({});
  assert.deepEqual(
    { state, createdAt, startedAt, finishedAt },
    { state: ContainerState.CONTAINER_CREATED, createdAt: second(1), startedAt: 0n, finishedAt: 0n },
  );
});

test("a restarted container shows nothing of its previous exit", () => {
  const again = life({ ...runningState, ExitCode: 137, FinishedAt: "2026-01-01T00:00:01.9Z" });
  assert.equal(again.state, ContainerState.CONTAINER_RUNNING);
  assert.deepEqual([again.exitCode, again.finishedAt, again.reason], [0, 0n, ""]);
});

test("paused and restarting containers are running", () => {
  for (const change of [{ Paused: true }, { Restarting: true }])
    assert.equal(life({ ...runningState, ...change }).state, ContainerState.CONTAINER_RUNNING);
});

test("an exited container has a reason", () => {
  const reasons = [
    life({ ...ended, ExitCode: 0 }),
    life({ ...ended, ExitCode: 3 }),
    life({ ...ended, ExitCode: 137, OOMKilled: true }),
  ].map(({ reason, exitCode }) => [exitCode, reason]);
  assert.deepEqual(reasons, [
    [0, "Completed"],
    [3, "Error"],
    [137, "OOMKilled"],
  ]);
});

test("a container that failed to start has exited at its creation time, with Docker's code and message", () => {
  const words = 'exec: "nosuch": executable file not found in $PATH';
  assert.deepEqual(life({ ExitCode: 127, Error: words }), {
    state: ContainerState.CONTAINER_EXITED,
    createdAt: second(1),
    startedAt: second(1),
    finishedAt: second(1),
    exitCode: 127,
    reason: "ContainerCannotRun",
    message: words,
  });
});

test("an exit that the daemon did not see is never dated before the start", () => {
  const { state, startedAt, finishedAt } = life({ ...ended, ExitCode: 255, FinishedAt: createdState.FinishedAt });
  assert.equal(state, ContainerState.CONTAINER_EXITED);
  assert.equal(finishedAt, startedAt);
});

test("a container being removed never counts as created", () => {
  assert.equal(life({ Status: "removing" }).state, ContainerState.CONTAINER_EXITED);
  assert.equal(life({ Status: "dead", Dead: true }).state, ContainerState.CONTAINER_EXITED);
});

test("a list entry determines all states except failed starts", () => {
  for (const status of ["running", "paused", "restarting"])
    assert.equal(listedState(status), ContainerState.CONTAINER_RUNNING);
  for (const status of ["exited", "dead", "removing"])
    assert.equal(listedState(status), ContainerState.CONTAINER_EXITED);
  assert.equal(listedState("created"), undefined);
});
