import type { ContainerInfo } from "dockerode";
import {
  ContainerState,
  type UpdateContainerResourcesRequest,
  Container,
  type ContainerFilter,
  ImageSpec,
} from "../../../src/gen/cri.ts";
import { CodedError, ignoreCode, ignoreNotFound } from "../../../src/lib/errors.ts";
import type { Containers } from "../../../src/seams/runtime.ts";
import { containerLifecycle, listedState } from "./state.ts";
import { containerStatus, containerMetadata } from "./status.ts";
import { createContainer } from "./create.ts";
import { resourceSettings } from "./host-config.ts";
import { containerType, imageLabel, sandboxIdLabel } from "./names.ts";
import { inspectOwn, listOwn } from "./own.ts";
import type { DockerParts } from "../parts.ts";
import { removeContainer } from "./remove.ts";
import { createSemaphore } from "../../../src/lib/semaphore.ts";
import { criLabels } from "./labels.ts";
import { secondsToNanoseconds } from "../client/times.ts";

/** Containers of this node over the Engine API. */
export function dockerContainers(parts: DockerParts): Omit<Containers, "execSync"> {
  return {
    createContainer: async (request, signal) => ({ containerId: await createContainer(parts, request, signal) }),
    startContainer: (id, signal) => startContainer(parts, id, signal),
    stopContainer: (id, graceSeconds, signal) => stopContainer(parts, id, graceSeconds, signal),
    removeContainer: (id, signal) => removeContainer(parts, id, signal),
    listContainers: (filter, signal) => listContainers(parts, filter, signal),
    containerStatus: async (id, signal) => ({ status: await containerStatus(parts, id, signal), info: {} }),
    updateContainerResources: (request, signal) => updateResources(parts, request, signal),
    reopenContainerLog: () =>
      Promise.reject(
        new CodedError("unimplemented", "Docker rotates container logs itself; reopening a log is not supported"),
      ),
  };
}

/** Starts a container that has not run yet, since Docker would restart an ended one. The link to its log exists before the start.
 *  @throws CodedError failed_precondition if it has been started already; otherwise the daemon's message. */
async function startContainer(parts: DockerParts, id: string, signal: AbortSignal): Promise<void> {
  const created = parts.facts.createdContainers.get(id);
  if (!created) await rejectStarted(parts, id, signal);
  parts.facts.createdContainers.delete(id);
  const path = `/containers/${id}/start`;
  await Promise.all([parts.docker.request({ method: "POST", path }, signal), created?.linked]);
}

async function rejectStarted(parts: DockerParts, id: string, signal: AbortSignal): Promise<void> {
  const { state } = containerLifecycle(await inspectOwn(parts, id, containerType, signal));
  if (state !== ContainerState.CONTAINER_CREATED)
    throw new CodedError("failed_precondition", `container ${id} has already been started`);
}

/** Stops a container. The grace period is added to the ordinary deadline; 0 kills at once. */
async function stopContainer(parts: DockerParts, id: string, graceSeconds: number, signal: AbortSignal): Promise<void> {
  const { State } = await inspectOwn(parts, id, containerType, signal);
  if (!State.Running) return;
  await postStop(parts, id, Math.max(0, Math.ceil(graceSeconds)), signal);
}

/** Makes the daemon stop a container. Succeeds if the container has ended already (304). */
export async function postStop({ docker }: DockerParts, id: string, seconds: number, signal: AbortSignal) {
  const request = { method: "POST", path: `/containers/${id}/stop`, query: { t: seconds } } as const;
  await ignoreCode(docker.request(request, signal, { beyondMs: seconds * 1000 }), "failed_precondition");
}

/** Updates the resources in the request and leaves the others; Docker cannot change a running container's OOM score.
 *  @see https://docs.docker.com/reference/api/engine/version/v1.41/#tag/Container/operation/ContainerUpdate */
async function updateResources(
  parts: DockerParts,
  { containerId, linux }: UpdateContainerResourcesRequest,
  signal: AbortSignal,
): Promise<void> {
  await inspectOwn(parts, containerId, containerType, signal);
  const body = resourceSettings(linux);
  if (Object.keys(body).length === 0) return;
  await parts.docker.request({ method: "POST", path: `/containers/${containerId}/update`, body }, signal);
}

/** Maximum number of concurrent inspections. */
const maxInspections = 8;

/** Containers of this node. States are the same as in container statuses; creation times have a precision of a second, as in the
 *  Engine API's lists. */
async function listContainers(
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

/** Returns the state of a container from its inspection; undefined if the container has disappeared. */
async function inspectedState(
  parts: DockerParts,
  id: string,
  signal: AbortSignal,
): Promise<ContainerState | undefined> {
  const found = await ignoreNotFound(inspectOwn(parts, id, containerType, signal));
  return found && containerLifecycle(found).state;
}
