import type { ContainerInspectInfo } from "dockerode";
import { CodedError } from "../../../src/lib/errors.ts";
import { containerType } from "./names.ts";
import { inspectOwn } from "./own.ts";
import type { DockerParts } from "../parts.ts";

/** Inspects a running container or sandbox of this node.
 *  @throws CodedError not_found, also for a container that is not this node's; failed_precondition if it is not running. */
export async function inspectRunning(
  parts: DockerParts,
  id: string,
  signal: AbortSignal,
  type: string = containerType,
): Promise<ContainerInspectInfo> {
  const found = await inspectOwn(parts, id, type, signal);
  if (found.State.Running && !found.State.Paused) return found;
  throw new CodedError("failed_precondition", `${type} ${id} is in state ${found.State.Status}, not running`);
}
