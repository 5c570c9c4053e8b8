import { setTimeout as sleep } from "node:timers/promises";
import { images, type SpecDraft } from "../../harness/pods.ts";
import { readState } from "../../harness/state.ts";
import { type Scenario, namesOf } from "../bench-lab.ts";
import { clear, live, numbered } from "../moments.ts";
import { probeCounts, unfit } from "../probe-counts.ts";
import { cpuSeconds } from "../usage.ts";

/** Fifty containers. */
const podCount = 10;
const containersEach = 5;
/** The starts are over by then; then the agent is watched for two minutes. */
const settleMs = 20_000;
const watchedMs = 120_000;

/** Fifty containers, each with a command that is run in it every second to see whether it lives: what its agent takes for that, and
 *  how often it says something else than is so. The command of one fails. */
export const probes: Scenario = async ({ cluster, pods, ledger }, { who, round, agent }) => {
  const prefix = namesOf("probes", { who, round });
  const names = numbered(prefix, podCount);
  await Promise.all(names.map((name, index) => live(pods, name, probed(cluster.nodeName, index === 0))));
  await sleep(settleMs);
  const containerd = readState(cluster.layout)?.daemons["containerd"]?.pid ?? Number.NaN;
  const isOwn = (pod: string) => pod.startsWith(prefix);
  const [counts, cpu, runtimeCpu] = [await probeCounts(cluster, isOwn), cpuSeconds(agent.pid), cpuSeconds(containerd)];
  const began = performance.now();
  await sleep(watchedMs);
  const seconds = (performance.now() - began) / 1000;
  ledger.note("probe cpu", who, round, ((cpuSeconds(agent.pid) - cpu) / seconds) * 60);
  ledger.note("probe runtime cpu", who, round, ((cpuSeconds(containerd) - runtimeCpu) / seconds) * 60);
  const now = await probeCounts(cluster, isOwn);
  ledger.note("probe rate", who, round, (now.made - counts.made) / seconds);
  // Those of the start count too.
  ledger.note("wrong probes", who, round, now.wrong);
  await clear(pods, names);
};

/** No container is restarted for what its probe says: all that is measured is the probing. A command has ten seconds, since fifty a
 *  second can be more than a machine is able to run. */
export function probed(nodeName: string, withUnfit: boolean): SpecDraft {
  const probe = (passes: boolean) => ({
    exec: { command: [passes ? "true" : "false"] },
    periodSeconds: 1,
    timeoutSeconds: 10,
    failureThreshold: 1_000_000,
  });
  const containers = Array.from({ length: containersEach }, (_, index) => {
    const fails = withUnfit && index === 0;
    return {
      name: fails ? unfit : `fit-${index}`,
      image: images.busybox,
      imagePullPolicy: "IfNotPresent",
      livenessProbe: probe(!fails),
    };
  });
  return { nodeName, containers };
}
