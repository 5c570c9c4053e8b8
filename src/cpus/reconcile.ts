import { UpdateContainerResourcesRequest } from "../gen/cri.ts";
import { type CpuSet, formatCpus } from "../lib/cpu-set.ts";
import { hasCode, throwIfAborted } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import type { PodCache } from "../pipeline.ts";
import { containerNameOf, isRunning } from "../pod/runs.ts";
import type { Containers } from "../seams/runtime.ts";

export interface CpusetUpdaterDeps {
  readonly runtime: Pick<Containers, "updateContainerResources">;
  readonly podCache: Pick<PodCache, "list">;
  /** CPUs that a container may use now. */
  readonly cpusOf: (uid: string, container: string) => CpuSet;
  readonly log: Logger;
}

/** Creates the updater of running containers: those without exclusive CPUs lose CPUs that became exclusive, and get released ones. */
export function createCpusetUpdater({ runtime, podCache, cpusOf, log }: CpusetUpdaterDeps) {
  /** CPUs of the newest container by pod UID and container name. */
  const created = new Map<string, Map<string, string>>();
  /** CPUs last set by container ID. */
  const applied = new Map<string, string>();
  const running = () =>
    podCache
      .list()
      .flatMap(({ uid, containers }) =>
        containers.filter(isRunning).map((run) => ({ uid, id: run.id, name: containerNameOf(run) })),
      );
  return {
    /** Records the CPUs with which a container is about to be created. */
    created(uid: string, container: string, cpus: string) {
      const ofPod = created.get(uid) ?? new Map<string, string>();
      created.set(uid, ofPod.set(container, cpus));
    },
    forget: (uid: string) => void created.delete(uid),
    /** Gives each running container its CPUs, unless it has them already. After a restart all of them are set once, because not every
     *  runtime reports them.
     *  @throws unavailable. */
    async update(signal: AbortSignal) {
      const runs = running();
      const ids = new Set(runs.map(({ id }) => id));
      for (const id of applied.keys()) if (!ids.has(id)) applied.delete(id);
      for (const { uid, id, name } of runs) {
        const cpus = formatCpus(cpusOf(uid, name));
        if ((applied.get(id) ?? created.get(uid)?.get(name)) === cpus) continue;
        try {
          const request = { containerId: id, linux: { cpusetCpus: cpus } };
          await runtime.updateContainerResources(UpdateContainerResourcesRequest.fromPartial(request), signal);
          applied.set(id, cpus);
        } catch (error) {
          throwIfAborted(signal);
          if (hasCode(error, "unavailable", "deadline_exceeded")) throw error;
          // A container that has ended meanwhile needs no CPUs.
          if (!hasCode(error, "not_found"))
            log.warn({ err: error, uid, container: name, cpus }, "cannot set the CPUs of a container; retrying");
        }
      }
    },
  };
}
