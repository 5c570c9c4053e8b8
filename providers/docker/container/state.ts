import type { ContainerInspectInfo } from "dockerode";
import { ContainerState } from "../../../src/gen/cri.ts";
import { nanoseconds } from "../client/times.ts";

/** CRI state and times of a container. Times are nanoseconds since the epoch, 0 for "not yet". */
export interface ContainerLifecycle {
  readonly state: ContainerState;
  readonly createdAt: bigint;
  readonly startedAt: bigint;
  readonly finishedAt: bigint;
  readonly exitCode: number;
  readonly reason: string;
  readonly message: string;
}

/** Returns the CRI state from an inspect response. Paused containers are running, as are those with a restart policy set by hand.
 *  Containers that failed to start or are being removed are exited, with Docker's exit code. Reasons are cri-dockerd's. Pure. */
export function containerLifecycle({
  Created,
  State,
}: Pick<ContainerInspectInfo, "Created" | "State">): ContainerLifecycle {
  const createdAt = nanoseconds(Created);
  const startedAt = nanoseconds(State.StartedAt);
  const notEnded = { createdAt, finishedAt: 0n, exitCode: 0, reason: "", message: "" };
  if (State.Running) return { ...notEnded, state: ContainerState.CONTAINER_RUNNING, startedAt };
  const finishedAt = nanoseconds(State.FinishedAt);
  const exitCode = State.ExitCode;
  const ended = { state: ContainerState.CONTAINER_EXITED, createdAt, exitCode, message: State.Error };
  if (startedAt > 0n)
    return { ...ended, startedAt, finishedAt: later(finishedAt, startedAt), reason: endReason(State) };
  if (exitCode !== 0 || State.Dead || State.Status === "removing")
    return { ...ended, startedAt: createdAt, finishedAt: createdAt, reason: "ContainerCannotRun" };
  return { ...notEnded, state: ContainerState.CONTAINER_CREATED, startedAt: 0n };
}

function endReason({ OOMKilled, ExitCode }: ContainerInspectInfo["State"]): string {
  if (OOMKilled) return "OOMKilled";
  return ExitCode === 0 ? "Completed" : "Error";
}

/** Returns the later of two times: a daemon that was killed may not know a container's end time. */
function later(finishedAt: bigint, startedAt: bigint): bigint {
  return finishedAt > startedAt ? finishedAt : startedAt;
}

/** Returns the CRI state from a list entry; undefined if an inspection is needed, since a created container may have failed to
 *  start.
 *  @param status of the Engine API: created, running, paused, restarting, removing, exited, dead. */
export function listedState(status: string): ContainerState | undefined {
  switch (status) {
    case "running":
    case "paused":
    case "restarting":
      return ContainerState.CONTAINER_RUNNING;
    case "exited":
    case "dead":
    case "removing":
      return ContainerState.CONTAINER_EXITED;
    default:
      return undefined;
  }
}
