import type { ContainerInspectInfo } from "dockerode";
import { CodedError } from "../../../src/lib/errors.ts";
import { containerType, sandboxType } from "./names.ts";
import { inspectOwn } from "./own.ts";
import type { DockerParts } from "../parts.ts";

/** Inspects a running container of this node.
 *  @throws CodedError not_found also for a foreign one, failed_precondition for one that is not running. */
export function inspectRunning(
  parts: DockerParts,
  containerId: string,
  signal: AbortSignal,
): Promise<ContainerInspectInfo> {
  return inspectIfRunning(parts, containerId, containerType, signal);
}

/** Inspects a running sandbox of this node. @throws like inspectRunning. */
export function inspectRunningSandbox(
  parts: DockerParts,
  sandboxId: string,
  signal: AbortSignal,
): Promise<ContainerInspectInfo> {
  return inspectIfRunning(parts, sandboxId, sandboxType, signal);
}

async function inspectIfRunning(
  parts: DockerParts,
  id: string,
  type: string,
  signal: AbortSignal,
): Promise<ContainerInspectInfo> {
  const found = await inspectOwn(parts, id, type, signal);
  if (found.State.Running && !found.State.Paused) return found;
  throw new CodedError("failed_precondition", `${type} ${id} is in state ${found.State.Status}, not running`);
}
