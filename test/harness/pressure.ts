import assert from "node:assert/strict";
import type { Node } from "../../src/objects.ts";
import { quantityValue } from "../../src/pod/quantity.ts";
import type { Cluster } from "./cluster.ts";
import { mount } from "./manifests.ts";
import { type Pods, shell, type SpecDraft, statusOf } from "./pods.ts";

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
