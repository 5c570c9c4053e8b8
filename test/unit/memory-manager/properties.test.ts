import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { idsOfNodes } from "../../../src/lib/numa-nodes.ts";
import { type MachineState, idleMachine } from "../../../src/memory-manager/machine-state.ts";
import { parseMemoryState, writeMemoryState } from "../../../src/memory-manager/state-file.ts";
import {
  type MemoryState,
  allocateMemory,
  allocatePodMemory,
  heldBlocks,
  releaseEndedInit,
  releasePod,
} from "../../../src/memory-manager/static-policy.ts";
import type { Container, Pod } from "../../../src/objects.ts";
import { isSidecar } from "../../../src/pod/containers.ts";
import { unaligned } from "../../../src/topology-hints.ts";
import { filesOf } from "../../fakes/files.ts";
import { never } from "../../fakes/signals.ts";
import { gib, node, podOf } from "./machines.ts";
import { restoredState } from "../../../src/memory-manager/open.ts";

const pages = "hugepages-2Mi";
const nodes = fc.array(fc.record({ size: fc.integer({ min: 2, max: 16 }), pages: fc.integer({ min: 0, max: 1 }) }), {
  minLength: 1,
  maxLength: 4,
});
const container = fc.record({
  memory: fc.integer({ min: 1, max: 20 }),
  pages: fc.integer({ min: 0, max: 2 }),
  sort: fc.constantFrom("main", "init", "sidecar"),
});
const steps = fc.array(
  fc.oneof(
    {
      weight: 3,
      arbitrary: fc.record({ admit: fc.array(container, { minLength: 1, maxLength: 4 }), whole: fc.boolean() }),
    },
    { weight: 1, arbitrary: fc.nat().map((start) => ({ start })) },
    { weight: 1, arbitrary: fc.nat().map((release) => ({ release })) },
  ),
  { minLength: 1, maxLength: 25 },
);

type Drafts = readonly { readonly memory: number; readonly pages: number; readonly sort: string }[];

/** @param whole the pod has pod-level resources, as much as all of its containers. */
function podWith(uid: string, drafts: Drafts, whole: boolean): Pod {
  const named = drafts.map(({ memory, pages: huge, sort }, at): { sort: string; one: Container } => {
    const amounts = { cpu: "1", memory: `${memory}Gi`, ...(huge > 0 && { [pages]: `${huge * 512}Mi` }) };
    const restarts = sort === "sidecar" ? ({ restartPolicy: "Always" } as const) : {};
    return {
      sort,
      one: { name: `c${at}`, image: "i", resources: { requests: amounts, limits: amounts }, ...restarts },
    };
  });
  const of = (main: boolean) => named.flatMap(({ sort, one }) => ((sort === "main") === main ? [one] : []));
  const pod = podOf(uid, of(true), of(false));
  const [memory, huge] = [drafts.map((each) => each.memory), drafts.map((each) => each.pages)].map((amounts) =>
    amounts.reduce((sum, amount) => sum + amount, 0),
  );
  const limits = { cpu: "9", memory: `${memory}Gi`, ...(huge && { [pages]: `${huge * 512}Mi` }) };
  return whole ? { ...pod, spec: { ...pod.spec, resources: { limits } } } : pod;
}

const containersOf = ({ spec: { initContainers = [], containers } }: Pod) => [...initContainers, ...containers];

/** Admits a pod, or leaves the state as it is if it does not fit. */
function admit(state: MemoryState, pod: Pod): MemoryState {
  try {
    if (pod.spec.resources) return allocatePodMemory(state, pod, unaligned);
    return containersOf(pod).reduce((now, one) => allocateMemory(now, pod, one), state);
  } catch (error) {
    assert.match(String(error), /\[memorymanager\] /);
    return state;
  }
}

/** The state after a restart: what the state file says. */
async function restarted(machine: MachineState, state: MemoryState): Promise<MemoryState> {
  const files: Record<string, string> = {};
  await writeMemoryState(filesOf(files), "/root", state, never);
  const saved = parseMemoryState(files["/root/memory_manager_state"] ?? "");
  assert.ok(saved);
  return restoredState(machine, { file: "memory_manager_state", ...saved });
}

function assertSound({ machine, assigned }: MemoryState): void {
  const blocks = [...assigned.values()].flatMap(heldBlocks);
  for (const [id, { tables, group, assignments }] of machine) {
    const here = blocks.filter((block) => idsOfNodes(block.nodes).includes(id));
    assert.equal(assignments, here.length);
    for (const block of here) assert.equal(block.nodes, group, "a node serves one group");
    for (const [type, { allocatable, reserved, free }] of tables) {
      assert.ok(reserved >= 0 && free >= 0, `${type} of node ${id}`);
      assert.equal(reserved + free, allocatable);
      const ofGroup = idsOfNodes(group).reduce(
        (sum, at) => sum + (machine.get(at)?.tables.get(type)?.reserved ?? 0),
        0,
      );
      const inBlocks = here.filter((block) => block.type === type).reduce((sum, { bytes }) => sum + bytes, 0);
      assert.equal(inBlocks, ofGroup, "blocks add up to what is reserved");
    }
  }
}

/** A pod has enough for its containers that run at one time. */
function assertEnough({ assigned }: MemoryState, pod: Pod): void {
  const own = assigned.get(pod.metadata.uid);
  if (!own) return;
  const { initContainers = [], containers } = pod.spec;
  const wanted = ({ resources }: Container) => Number.parseInt(resources?.requests?.["memory"] ?? "", 10) * gib;
  const sum = (of: readonly Container[]) => of.reduce((total, one) => total + wanted(one), 0);
  const total = heldBlocks(own)
    .filter(({ type }) => type === "memory")
    .reduce((bytes, block) => bytes + block.bytes, 0);
  assert.ok(total >= sum([...initContainers.filter(isSidecar), ...containers]));
}

test("no NUMA node allocates more memory than it has, a release returns all of it, and a restart at any point changes nothing", async () => {
  await fc.assert(
    fc.asyncProperty(nodes, steps, async (sizes, actions) => {
      const topology = sizes.map((of, id) => node(id, of.size, of.pages));
      const machine = idleMachine(topology, new Map([[0, new Map([["memory", gib / 2]])]]));
      let state: MemoryState = { machine, assigned: new Map() };
      const pods = new Map<string, Pod>();
      const chosen = (wish: number) => [...pods.values()][wish % Math.max(1, pods.size)];
      for (const [at, action] of actions.entries()) {
        const pod = "admit" in action ? podWith(`pod-${at}`, action.admit, action.whole) : undefined;
        if (pod) {
          pods.set(pod.metadata.uid, pod);
          state = admit(state, pod);
          assertEnough(state, pod);
        } else if ("start" in action) {
          const starting = chosen(action.start);
          const [, , one] = starting ? containersOf(starting) : [];
          if (starting && one) state = releaseEndedInit(state, starting, one.name);
        } else if ("release" in action) state = releasePod(state, chosen(action.release)?.metadata.uid ?? "");
        assertSound(state);
        assert.deepEqual(await restarted(machine, state), state);
      }
      const end = [...state.assigned.keys()].reduce(releasePod, state);
      assert.deepEqual(end, { machine, assigned: new Map() });
    }),
    { numRuns: 200 },
  );
});
