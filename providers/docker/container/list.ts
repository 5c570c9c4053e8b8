import type { ContainerInfo } from "dockerode";
import { Container, type ContainerFilter, type ContainerState, ImageSpec } from "../../../src/gen/cri.ts";
import { createSemaphore } from "../../../src/lib/semaphore.ts";
import { ifFound } from "../client/errors.ts";
import { containerLifecycle, listedState } from "./state.ts";
import { containerMetadata } from "./status.ts";
import { criLabels } from "./labels.ts";
import { containerType, imageLabel, sandboxIdLabel } from "./names.ts";
import { inspectOwn, listOwn } from "./own.ts";
import type { DockerParts } from "../parts.ts";
import { secondsToNanoseconds } from "../client/times.ts";

/** Maximum number of concurrent inspections. */
const maxInspections = 8;

/** Containers of this node. States agree with their statuses; creation times have the Engine API list's precision of a
 *  second. */
export async function listContainers(
  parts: DockerParts,
  filter: ContainerFilter | undefined,
  signal: AbortSignal,
): Promise<readonly Container[]> {
  const { id = "", podSandboxId = "", labelSelector = {}, state } = filter ?? {};
  const labels = { ...labelSelector, ...(podSandboxId && { [sandboxIdLabel]: podSandboxId }) };
  const found = await listOwn(parts, containerType, { labels, id }, signal);
  const limited = createSemaphore(maxInspections);
  const stateOf = async (info: ContainerInfo) =>
    listedState(info.State) ?? (await limited(() => inspectedState(parts, info.Id, signal)));
  const states = await Promise.all(found.map(stateOf));
  return found.flatMap((info, index) => {
    const seen = states[index];
    return seen === undefined || (state && seen !== state.state) ? [] : [criContainer(info, seen)];
  });
}

function criContainer(info: ContainerInfo, state: ContainerState): Container {
  const labels = criLabels(info.Labels);
  return Container.fromPartial({
    id: info.Id,
    podSandboxId: info.Labels[sandboxIdLabel] ?? "",
    metadata: containerMetadata(info.Names[0] ?? "", labels),
    image: ImageSpec.fromPartial({ image: info.Labels[imageLabel] ?? info.Image }),
    imageRef: info.ImageID,
    imageId: info.ImageID,
    state,
    createdAt: secondsToNanoseconds(info.Created),
    ...labels,
  });
}

/** Undefined for a container that has disappeared. */
async function inspectedState(
  parts: DockerParts,
  id: string,
  signal: AbortSignal,
): Promise<ContainerState | undefined> {
  const found = await ifFound(inspectOwn(parts, id, containerType, signal));
  return found && containerLifecycle(found).state;
}
