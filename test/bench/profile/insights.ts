import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Cluster } from "../../harness/cluster.ts";
import { must } from "../../harness/processes.ts";
import { readState } from "../../harness/state.ts";
import { waitFor } from "../../harness/wait.ts";
import { encodeCpuProfile } from "../../../src/server/profile-encoding.ts";
import { type CpuSlice, sampleCpu } from "./cpu-timeline.ts";
import { heapSizes } from "./heap-sizes.ts";

const folder = join(import.meta.dirname, "..", "..", "..", "dist", "profile");
const restartProfile = "restart.cpuprofile";
const periodUs = 1_000;
const sampleMs = 100;

/** Environment of an agent whose heap can be read. */
export function heapEnv(): Readonly<Record<string, string>> {
  mkdirSync(folder, { recursive: true });
  return { NODE_OPTIONS: `--heapsnapshot-signal=SIGUSR2 --diagnostic-dir=${folder}` };
}

/** Environment of an agent that writes a profile of its whole life when it ends. */
export function lifeEnv(): Readonly<Record<string, string>> {
  return {
    NODE_OPTIONS: `--cpu-prof --cpu-prof-dir=${folder} --cpu-prof-name=${restartProfile} --cpu-prof-interval=${periodUs}`,
  };
}

/** Samples the CPU time of the cluster's processes while the work goes on. @param agent returns the PID of the agent. */
export async function sampledDuring<T>(
  { layout }: Cluster,
  agent: () => number,
  work: () => Promise<T>,
): Promise<{ readonly result: T; readonly slices: readonly CpuSlice[] }> {
  const inside = readState(layout)?.daemons["containerd"]?.pid ?? 0;
  const over = new AbortController();
  const sampling = sampleCpu({ inside, agent, intervalMs: sampleMs }, over.signal);
  const result = await work().finally(() => over.abort());
  return { result, slices: await sampling };
}

/** Has an agent with `heapEnv` write a heap snapshot, and reads it. */
export async function heapOf(pid: number): Promise<ReadonlyMap<string, number>> {
  const snapshots = () => readdirSync(folder).filter((name) => name.endsWith(".heapsnapshot"));
  for (const name of snapshots()) rmSync(join(folder, name));
  process.kill(pid, "SIGUSR2");
  await waitFor("the heap snapshot", () => snapshots().length > 0, { timeoutMs: 60_000 });
  // The file is complete when the process serves its API again.
  await sleep(5_000);
  return heapSizes(join(folder, snapshots()[0] ?? ""));
}

/** Functions by their own CPU time, from the kubelet API. @param seconds for which they are sampled. */
export async function topFunctions(cluster: Cluster, seconds: number): Promise<string> {
  const path = `/api/v1/nodes/${cluster.nodeName}/proxy/debug/pprof/profile?seconds=${seconds}`;
  const file = join(folder, "cpu.pb.gz");
  const get = [cluster.tools.path("kubectl"), "--kubeconfig", cluster.adminKubeconfig, "get", "--raw", path];
  await cluster.mustRunInside(["sh", "-c", 'out=$1; shift; exec "$@" >"$out"', "sh", file, ...get]);
  return topOf(file);
}

/** Functions by their own CPU time in the life of an agent with `lifeEnv`, which has ended. */
export async function topFunctionsOfLife(tookMs: number): Promise<string> {
  const profile = JSON.parse(readFileSync(join(folder, restartProfile), "utf8")) as Parameters<
    typeof encodeCpuProfile
  >[0];
  const file = join(folder, "restart.pb.gz");
  writeFileSync(file, await encodeCpuProfile(profile, { startedAt: 0, durationMs: tookMs }, periodUs));
  return topOf(file);
}

function topOf(file: string): Promise<string> {
  return must(["go", "tool", "pprof", "-top", "-nodecount=25", file]);
}
