import assert from "node:assert/strict";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { CoreEvent, Node } from "../../src/objects.ts";
import { quantityValue } from "../../src/pod/quantity.ts";
import type { Cluster } from "./cluster.ts";
import { mount } from "./manifests.ts";
import { type Pods, shell, type SpecDraft, statusOf } from "./pods.ts";
import { turn } from "./turn.ts";

/** Memory of a pod, as quantities. */
export interface MemoryShare {
  readonly requests?: string;
  /** A pod with it is Guaranteed. */
  readonly limits?: string;
}

/** A pod that keeps so much in a volume that lies in memory, and is Ready once it does. */
export function keepingMemory(mebibytes: number, memory: MemoryShare = {}): SpecDraft {
  return {
    volumes: [{ name: "v", emptyDir: { medium: "Memory" } }],
    containers: [
      shell(`dd if=/dev/zero of=/v/it bs=1M count=${mebibytes} 2>/dev/null; touch /v/done; exec sleep infinity`, {
        volumeMounts: [mount("v")],
        readinessProbe: { exec: { command: ["test", "-e", "/v/done"] }, periodSeconds: 1 },
        resources: {
          ...(memory.requests && { requests: { memory: memory.requests } }),
          ...(memory.limits && { limits: { memory: memory.limits, cpu: "100m" } }),
        },
      }),
    ],
  };
}

/** Of a pod that takes no part in what taints of the node say. */
export const tolerant = { tolerations: [{ operator: "Exists" as const }] };

/** A pod that keeps so much in a volume on the node's disk. @param requests of local storage, as a quantity. */
export function keepingFiles(mebibytes: number, requests?: string): SpecDraft {
  return {
    ...tolerant,
    volumes: [{ name: "v", emptyDir: {} }],
    containers: [
      shell(`dd if=/dev/zero of=/v/it bs=1M count=${mebibytes} 2>/dev/null; exec sleep infinity`, {
        volumeMounts: [mount("v")],
        ...(requests && { resources: { requests: { "ephemeral-storage": requests } } }),
      }),
    ],
  };
}

/** Processes of a pod that takes too many. Half of them may be taken by others meanwhile: each further cluster on the machine takes
 *  hundreds. */
export const tooManyProcesses = 3000;

/** A pod that has so many processes. */
export function keepingProcesses(count: number): SpecDraft {
  return { ...tolerant, containers: [shell(`for i in $(seq ${count}); do sleep infinity & done; wait`)] };
}

/** The turn of tests that take process IDs until they run short, for as long as their agent has a threshold: they are the kernel's, and
 *  other clusters run short with them. */
export function processIdsTurn(): Promise<AsyncDisposable> {
  return turn(join(tmpdir(), "graftlet-test-process-ids.lock"));
}

/** A threshold of process IDs that is met when half of `tooManyProcesses` more than now have been taken. */
export async function pidsToLeave(cluster: Cluster): Promise<string> {
  const paths = ["/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max", "/proc/loadavg"];
  const [pidMax, threadsMax, load = ""] = await Promise.all(paths.map((path) => cluster.mustRunInside(["cat", path])));
  const taken = Number(/\/(\d+) /.exec(load)?.[1]);
  return String(Math.min(Number(pidMax), Number(threadsMax)) - taken - tooManyProcesses / 2);
}

/** Gives the agent's root directory a file system of its own, in a file; it ends with the cluster's namespaces. No agent runs yet. */
export async function smallRootDir(cluster: Cluster, mebibytes: number): Promise<void> {
  const { kubeletRoot, dir } = cluster.layout;
  const file = `${dir}/disk`;
  const script = `truncate -s ${mebibytes}M ${file} && mke2fs -q -t ext4 -m 0 ${file} && mount -o loop ${file} ${kubeletRoot}`;
  await cluster.mustRunInside(["sh", "-ec", script]);
}

/** Settings of an agent whose pods have so much memory together, MiB, of which 100 are to stay free. The node is known already. */
export async function scarceMemory(cluster: Cluster, mebibytes: number): Promise<object> {
  const node = await cluster.get<Node>("node", cluster.nodeName);
  const reserved = Math.floor(quantityValue(node?.status?.capacity?.["memory"] ?? "") / 2 ** 20) - mebibytes;
  return { systemReserved: { memory: `${reserved}Mi` }, evictionHard: { "memory.available": "100Mi" } };
}

/** Waits until the node has a condition with that status. */
export async function untilCondition(cluster: Cluster, type: string, status: "True" | "False"): Promise<void> {
  await cluster.waitFor(
    `${type} to be ${status}`,
    async () => {
      const node = await cluster.get<Node>("node", cluster.nodeName);
      return node?.status?.conditions?.some((each) => each.type === type && each.status === status);
    },
    { timeoutMs: 60_000 },
  );
}

/** Waits until a pod has failed. */
export function untilEvicted(pods: Pods, name: string): ReturnType<Pods["until"]> {
  return pods.until(name, "to be evicted", ({ status }) => status?.phase === "Failed", 90_000);
}

/** Asserts that these pods run on, and that no container of them began anew. */
export async function untouched(pods: Pods, names: readonly string[]): Promise<void> {
  for (const name of names) {
    const pod = await pods.until(name, "to be known", () => true);
    assert.deepEqual([name, pod.status?.phase, statusOf(pod)?.restartCount], [name, "Running", 0]);
  }
}

/** Deletes pods at once, and waits until they are gone. */
export async function clear(pods: Pods, names: readonly string[]): Promise<void> {
  const gone = names.map((name) => pods.gone(name));
  await Promise.all(names.map((name) => pods.remove(name, 0)));
  await Promise.all(gone);
}

/** How often events say that a pod was evicted, by its name. */
export async function evictionsTold({ api }: Pods): Promise<ReadonlyMap<string, number>> {
  const { items } = await api.get<{ items: CoreEvent[] }>("/api/v1/events?fieldSelector=reason=Evicted");
  const times = new Map<string, number>();
  for (const { involvedObject, count = 1, series } of items) {
    const { name = "" } = involvedObject;
    times.set(name, (times.get(name) ?? 0) + (series?.count ?? count));
  }
  return times;
}

/** Asserts that these pods were evicted and none other, and each once, or a second time by an agent that took over from a killed one. */
export async function onlyEvicted(pods: Pods, names: readonly string[]): Promise<void> {
  const told = await evictionsTold(pods);
  assert.deepEqual([...told.keys()].toSorted(), [...names].toSorted());
  for (const [name, times] of told) assert.ok(times <= 2, `${name} was evicted ${times} times`);
}
