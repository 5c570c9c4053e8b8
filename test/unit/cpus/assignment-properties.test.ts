import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { distributeCpus } from "../../../src/cpus/distribute-cpus.ts";
import { createPodAssigner } from "../../../src/cpus/pod-assigner.ts";
import {
  type Assignments,
  type StaticPolicy,
  createStaticPolicy,
  podCpuCount,
  sharedPool,
} from "../../../src/cpus/static-policy.ts";
import { parseCpuState, writeCpuState } from "../../../src/cpus/state-file.ts";
import { takeCpus } from "../../../src/cpus/take-cpus.ts";
import type { CpuTopology } from "../../../src/cpus/topology.ts";
import type { CpuSet } from "../../../src/lib/cpu-set.ts";
import type { Pod } from "../../../src/objects.ts";
import { isSidecar } from "../../../src/pod/containers.ts";
import { wholePod } from "../../../src/pod/pinned-resources.ts";
import { never } from "../../fakes/signals.ts";
import { assignPod, type MachineDraft, asking, cpus, machine, noOptions, podOf } from "./machines.ts";
import { restoredAssignments } from "../../../src/cpus/open.ts";

const draft = fc
  .record({
    sockets: fc.integer({ min: 1, max: 4 }),
    nodes: fc.integer({ min: 1, max: 4 }),
    caches: fc.integer({ min: 1, max: 2 }),
    cores: fc.integer({ min: 1, max: 16 }),
    threads: fc.integer({ min: 1, max: 2 }),
  })
  .filter((of) => sizeOf(of) >= 2 && sizeOf(of) <= 256 && of.sockets * of.nodes <= 8);
const sizeOf = ({ sockets = 1, nodes = 1, caches = 1, cores = 1, threads = 1 }: MachineDraft) =>
  sockets * nodes * caches * cores * threads;
const options = fc.constantFrom(
  {},
  { fullCores: true },
  { distributeAcrossNuma: true },
  { distributeAcrossNuma: true, fullCores: true },
  { spreadAcrossCores: true },
  { alignCaches: true },
  { alignCaches: true, fullCores: true, strictReservation: true },
  { strictReservation: true },
);
const container = fc.record({ cpu: fc.integer({ min: 1, max: 12 }), sort: fc.constantFrom("main", "init", "sidecar") });
const steps = fc.array(
  fc.oneof(
    {
      weight: 3,
      arbitrary: fc.record({
        admit: fc.array(container, { minLength: 1, maxLength: 4 }),
        /** CPUs that the pod has as a whole, beyond those of its containers; undefined for a pod without pod-level resources. */
        spare: fc.option(fc.integer({ min: 0, max: 3 }), { nil: undefined }),
      }),
    },
    { weight: 1, arbitrary: fc.nat().map((release) => ({ release })) },
  ),
  { minLength: 1, maxLength: 25 },
);

function podWith(uid: string, containers: readonly { readonly cpu: number; readonly sort: string }[]): Pod {
  const named = containers.map(({ cpu, sort }, at) => ({
    sort,
    container: asking(`c${at}`, String(cpu), sort === "sidecar" ? { restartPolicy: "Always" } : {}),
  }));
  const of = (main: boolean) => named.flatMap(({ sort, container }) => ((sort === "main") === main ? [container] : []));
  return podOf(uid, [...of(true), asking("last", "1")], { initContainers: of(false) });
}

/** Assigns CPUs to a pod, as a whole if it has spare ones. */
function assign(policy: StaticPolicy, assigned: Assignments, pod: Pod, spare: number | undefined) {
  if (spare === undefined) return assignPod(policy, assigned, pod);
  const cpu = String(podCpuCount(pod) + spare);
  const limited = { ...pod, spec: { ...pod.spec, resources: { limits: { cpu, memory: "64Gi" } } } };
  const assigner = createPodAssigner(policy, assigned, limited);
  assert.equal(assigner.assignWhole()?.size, Number(cpu));
  return assigner.own;
}

/** CPUs of a pod's containers that run at the same time have one owner each. */
function assertOwnersDiffer(pod: Pod, own: ReadonlyMap<string, CpuSet>): void {
  const { initContainers = [], containers } = pod.spec;
  const cpusOf = (name: string) => [...(own.get(name) ?? [])];
  const together = [...initContainers.filter(isSidecar), ...containers].flatMap(({ name }) => cpusOf(name));
  assert.equal(together.length, new Set(together).size, "containers and sidecars share a CPU");
  for (const [at, init] of initContainers.entries()) {
    const beside = [...initContainers.slice(0, at).filter(isSidecar), init].flatMap(({ name }) => cpusOf(name));
    assert.equal(beside.length, new Set(beside).size, "an init container shares a CPU with a sidecar before it");
  }
}

/** The assignments after a restart: what the state file says. */
async function restarted(policy: ReturnType<typeof createStaticPolicy>, assigned: Assignments): Promise<Assignments> {
  let text = "";
  const fs = {
    apply: async (changes: readonly object[]) => {
      for (const change of changes) if ("data" in change) text = String(change.data);
    },
  };
  const state = { policy: "static", shared: sharedPool(policy, assigned), assigned };
  await writeCpuState(fs, "/root", state, never);
  const saved = parseCpuState(text);
  assert.ok(saved);
  return restoredAssignments(policy, { file: "cpu_manager_state", ...saved });
}

test("no CPU ever has two owners or is outside the allowed set, and a restart at any point changes nothing", async () => {
  const reservedShare = fc.double({ min: 0, max: 0.5, noNaN: true });
  await fc.assert(
    fc.asyncProperty(draft, options, reservedShare, steps, async (of, chosen, share, actions) => {
      const topology = machine(of);
      const reservedMilli = 1000 * Math.max(1, Math.floor(share * topology.cpus.length));
      const opened = { topology, options: { ...noOptions, ...chosen }, reserved: cpus(), reservedMilli };
      const policy = createStaticPolicy(opened);
      let assigned: Assignments = new Map();
      for (const [at, action] of actions.entries()) {
        const next = new Map(assigned);
        if ("release" in action) {
          const uid = [...assigned.keys()][action.release % Math.max(1, assigned.size)];
          if (uid !== undefined) next.delete(uid);
        } else {
          const pod = podWith(`pod-${at}`, action.admit);
          const own = attempt(() => assign(policy, assigned, pod, action.spare));
          if (own) {
            next.set(pod.metadata.uid, own);
            assertOwnersDiffer(pod, own);
            const wanted = [...(pod.spec.initContainers ?? []), ...pod.spec.containers].map(
              ({ name, resources }) => [name, Number(resources?.requests?.["cpu"])] as const,
            );
            assert.deepEqual(
              new Map([...own].flatMap(([name, set]) => (name === wholePod ? [] : [[name, set.size]]))),
              new Map(wanted),
            );
          }
        }
        assigned = next;
        const pods = [...assigned.values()].map((own) => new Set([...own.values()].flatMap((set) => [...set])));
        const all = pods.flatMap((set) => [...set]);
        assert.equal(all.length, new Set(all).size, "two pods share a CPU");
        assert.ok(all.every((cpu) => topology.ids.has(cpu) && !policy.reserved.has(cpu)));
        const shared = sharedPool(policy, assigned);
        assert.ok(shared.isDisjointFrom(new Set(all)));
        const allowed = policy.options.strictReservation ? topology.ids.difference(policy.reserved) : topology.ids;
        assert.equal(shared.size + all.length, allowed.size);
        assert.deepEqual(await restarted(policy, assigned), assigned);
      }
    }),
    { numRuns: 150 },
  );
});

/** Undefined if the request cannot be satisfied. */
function attempt<T>(assign: () => T): T | undefined {
  try {
    return assign();
  } catch (error) {
    assert.match(String(error), /not enough cpus available|SMT Alignment Error/);
    return undefined;
  }
}

const nodesOf = ({ cpus }: CpuTopology, taken: CpuSet) =>
  new Set(cpus.filter(({ id }) => taken.has(id)).map(({ numaNode }) => numaNode)).size;

test("uses no more NUMA nodes than an exhaustive search would if nodes are entirely free", () => {
  fc.assert(
    fc.property(draft, fc.infiniteStream(fc.boolean()), fc.nat(), (of, free, wish) => {
      const topology = machine(of);
      const nodes = Map.groupBy(topology.cpus, ({ numaNode }) => numaNode);
      const freeNodes = [...nodes.values()].filter(() => free.next().value);
      const available = new Set(freeNodes.flatMap((cpus) => cpus.map(({ id }) => id)));
      if (available.size === 0) return;
      const count = 1 + (wish % available.size);
      const taken = takeCpus(topology, available, count, noOptions);
      assert.equal(taken.size, count);
      assert.equal(
        nodesOf(topology, taken),
        fewestNodes(
          freeNodes.map((cpus) => cpus.length),
          count,
          () => true,
        ),
      );
    }),
    { numRuns: 300 },
  );
});

test("distributes CPUs over no more NUMA nodes than an exhaustive search that may use partly free nodes", () => {
  const small = draft.filter((of) => sizeOf(of) <= 32);
  fc.assert(
    fc.property(small, fc.infiniteStream(fc.boolean()), fc.nat(), (of, free, wish) => {
      const topology = machine(of);
      const available = new Set(topology.cpus.filter(() => free.next().value).map(({ id }) => id));
      if (available.size === 0) return;
      const count = 1 + (wish % available.size);
      const taken = distributeCpus(topology, available, count, { ...noOptions, groupSize: 1 });
      assert.equal(taken.size, count);
      assert.ok(taken.isSubsetOf(available));
      const sizes = [...Map.groupBy(topology.cpus, ({ numaNode }) => numaNode).values()].map(
        (cpus) => cpus.filter(({ id }) => available.has(id)).length,
      );
      const share = (size: number, nodes: number) => size >= Math.floor(count / nodes);
      const fewest = fewestNodes(sizes, count, (chosen) => chosen.every((size) => share(size, chosen.length)));
      if (fewest !== undefined) assert.equal(nodesOf(topology, taken), fewest);
    }),
    { numRuns: 300 },
  );
});

/** The smallest number of nodes with enough free CPUs, by trying all choices. */
function fewestNodes(
  sizes: readonly number[],
  count: number,
  fits: (chosen: readonly number[]) => boolean,
): number | undefined {
  const found = Array.from({ length: 2 ** sizes.length }, (_, bits) => sizes.filter((_, at) => bits & (1 << at)))
    .filter((chosen) => chosen.length <= count && chosen.reduce((sum, size) => sum + size, 0) >= count && fits(chosen))
    .map((chosen) => chosen.length);
  return found.length > 0 ? Math.min(...found) : undefined;
}
