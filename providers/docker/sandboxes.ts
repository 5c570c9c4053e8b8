import type { ContainerInspectInfo } from "dockerode";
import type { PodSandboxFilter } from "../../src/gen/cri.ts";
import { hasCode } from "../../src/lib/errors.ts";
import type { Sandboxes } from "../../src/seams/runtime.ts";
import { ask } from "./client.ts";
import { takeFirstLook } from "./first-look.ts";
import { noteSandbox } from "./memory.ts";
import { containerType, sandboxIdLabel, sandboxType } from "./names.ts";
import { inspectOwn, listOwn } from "./own.ts";
import type { DockerParts } from "./parts.ts";
import { forceRemove, removeContainer } from "./remove-container.ts";
import { type SandboxParts, runSandbox } from "./run-sandbox.ts";
import { listedSandbox, sandboxStatus } from "./sandbox-status.ts";

/** Sandboxes over the Engine API: this node's, and no others. */
export function dockerSandboxes(deps: SandboxParts): Sandboxes {
  const { parts, network } = deps;
  return {
    runPodSandbox: async (request, signal) => ({ podSandboxId: await runSandbox(deps, request, signal) }),
    stopPodSandbox: (id, signal) => stopSandbox(parts, id, signal),
    removePodSandbox: (id, signal) => removeSandbox(parts, id, signal),
    async podSandboxStatus(id, signal) {
      const found = takeFirstLook(parts, id) ?? (await inspectOwn(parts, id, sandboxType, signal));
      noteSandbox(parts.memory, found);
      return { status: sandboxStatus(found, network.known()), info: {}, containersStatuses: [], timestamp: 0n };
    },
    listPodSandbox: (filter, signal) => listSandboxes(parts, filter, signal),
  };
}

async function listSandboxes(parts: DockerParts, filter: PodSandboxFilter | undefined, signal: AbortSignal) {
  const { id, labelSelector = {}, state } = filter ?? {};
  const found = await listOwn(parts, sandboxType, { labels: labelSelector, ...(id && { id }) }, signal);
  const sandboxes = found.map(listedSandbox);
  return state ? sandboxes.filter((sandbox) => sandbox.state === state.state) : sandboxes;
}

/** How long the sandbox's own program may take to end, seconds: it does so at once. */
const sandboxGraceSeconds = 10;

/** Ends the sandbox's containers, then it. Whoever removed the sandbox behind our back left its containers running: they are
 *  found by their label. What has ended, or is gone, needs nothing. */
async function stopSandbox(parts: DockerParts, id: string, signal: AbortSignal): Promise<void> {
  const containers = await containersOf(parts, id, signal);
  const running = containers.filter(({ State }) => !["created", "exited", "dead"].includes(State));
  await Promise.all(running.map(({ Id }) => stop(parts, Id, 0, signal)));
  const sandbox = await ownOrNone(parts, id, signal);
  if (sandbox?.State.Running) await stop(parts, sandbox.Id, sandboxGraceSeconds, signal);
}

async function removeSandbox(parts: DockerParts, id: string, signal: AbortSignal): Promise<void> {
  const containers = await containersOf(parts, id, signal);
  await Promise.all(containers.map(({ Id }) => unlessGone(removeContainer(parts, Id, signal))));
  const sandbox = await ownOrNone(parts, id, signal);
  if (sandbox) await forceRemove(parts, sandbox.Id, signal);
  parts.memory.sandboxes.delete(id);
  parts.memory.fresh.delete(id);
}

function containersOf(parts: DockerParts, id: string, signal: AbortSignal) {
  return listOwn(parts, containerType, { labels: { [sandboxIdLabel]: id } }, signal);
}

async function ownOrNone(
  parts: DockerParts,
  id: string,
  signal: AbortSignal,
): Promise<ContainerInspectInfo | undefined> {
  try {
    return await inspectOwn(parts, id, sandboxType, signal);
  } catch (error) {
    if (hasCode(error, "not_found")) return undefined;
    throw error;
  }
}

async function stop({ docker }: DockerParts, id: string, graceSeconds: number, signal: AbortSignal): Promise<void> {
  try {
    await docker.call(
      (engine, abortSignal) =>
        ask<unknown>(engine, {
          method: "POST",
          path: `/containers/${id}/stop`,
          query: { t: graceSeconds },
          signal: abortSignal,
        }),
      signal,
      { beyondMs: graceSeconds * 1000 },
    );
  } catch (error) {
    // Gone (404), or ended by itself meanwhile (304).
    if (!hasCode(error, "not_found", "failed_precondition")) throw error;
  }
}

async function unlessGone(work: Promise<void>): Promise<void> {
  try {
    await work;
  } catch (error) {
    if (!hasCode(error, "not_found")) throw error;
  }
}
