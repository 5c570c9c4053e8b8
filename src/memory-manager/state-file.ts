import { stateFilesOf } from "../host/layout.ts";
import { isIntact, readSavedState, replaceState } from "../host/saved-state.ts";
import { dumpList, dumpMap } from "../lib/go-dump.ts";
import type { Logger } from "../lib/log.ts";
import { type NumaNodes, idsOfNodes, maxNumaNode, numaNodes } from "../lib/numa-nodes.ts";
import { entriesOf, recordIn, recordOf } from "../lib/record.ts";
import { fnv32a } from "../pod/hash.ts";
import { wholePod } from "../pod/pinned-resources.ts";
import type { HostFs } from "../seams/host.ts";
import type { MachineState, MemoryBlock, MemoryTable, NumaNodeState } from "./machine-state.ts";
import type { MemoryState, PodMemory } from "./static-policy.ts";

/** The memory manager's state, as written before a restart. */
export interface SavedMemory extends MemoryState {
  readonly policy: string;
}

/** Reads the state in a root directory. A corrupt file counts as no state: memory is then allocated from scratch. Changes nothing on the
 *  target. @returns the state, and the file that it was read from; undefined without a state. @throws if the target cannot be read. */
export async function readMemoryState(
  fs: Pick<HostFs, "readFile">,
  rootDir: string,
  log: Logger,
  signal: AbortSignal,
): Promise<(SavedMemory & { readonly file: string }) | undefined> {
  const parse = { current: parseMemoryState, former: parseFormerState };
  const found = await readSavedState(fs, stateFilesOf(rootDir, "memory"), parse, signal);
  if (!found) return undefined;
  const { file, state } = found;
  if (!state) log.warn({ file }, "cannot parse the state of the memory manager; allocating memory from scratch");
  return state && { file, ...state };
}

/** Atomically replaces the state. @param state undefined: removes it. */
export async function writeMemoryState(
  fs: Pick<HostFs, "apply">,
  rootDir: string,
  state: MemoryState | undefined,
  signal: AbortSignal,
): Promise<void> {
  const data = state && encodeState({ policy: "Static", ...state });
  await fs.apply(replaceState(stateFilesOf(rootDir, "memory"), data), signal);
}

function encodeState(state: SavedMemory): string {
  const machineState = Object.fromEntries(
    [...state.machine].map(([id, { assignments, group, tables }]) => [
      id,
      { numberOfAssignments: assignments, memoryMap: Object.fromEntries(tables), cells: idsOfNodes(group) },
    ]),
  );
  const entries = Object.fromEntries(
    ofContainers(state.assigned).map(([uid, own]) => [
      uid,
      Object.fromEntries(own.map(([name, blocks]) => [name, blocks.map(blockToWire)])),
    ]),
  );
  const whole = ofPods(state.assigned);
  const podEntries = Object.fromEntries(whole.map(([uid, blocks]) => [uid, { memoryBlocks: blocks.map(blockToWire) }]));
  return JSON.stringify({
    policyName: state.policy,
    machineState,
    entries,
    ...(whole.length > 0 && { podEntries }),
    checksum: checksumOf(state, whole.length > 0),
  });
}

function blockToWire({ nodes, type, bytes }: MemoryBlock) {
  return { numaAffinity: idsOfNodes(nodes), type, size: bytes };
}

/** Memory by pod and container, without the memory that whole pods have. */
function ofContainers(assigned: MemoryState["assigned"]) {
  return [...assigned].flatMap(([uid, own]) => {
    const containers = [...own].filter(([name]) => name !== wholePod);
    return containers.length > 0 ? [[uid, containers] as const] : [];
  });
}

function ofPods(
  assigned: MemoryState["assigned"],
): readonly (readonly [uid: string, blocks: readonly MemoryBlock[]])[] {
  return [...assigned].flatMap(([uid, own]) =>
    [...own].flatMap(([name, blocks]) => (name === wholePod ? [[uid, blocks]] : [])),
  );
}

/** FNV-1a over Go's typed dump of the state. @param hasPods true if the file has entries for whole pods, as in the second version of
 *  the kubelet's format. */
function checksumOf({ policy, machine, assigned }: SavedMemory, hasPods: boolean): number {
  const nodes = [...machine].map(([id, node]) => [id, dumpNode(node)] as const);
  const blocksOf = (blocks: readonly MemoryBlock[]) => dumpList(blocks.map(dumpBlock));
  const entries = ofContainers(assigned).map(
    ([uid, own]) => [uid, dumpMap(own.map(([name, blocks]) => [name, blocksOf(blocks)]))] as const,
  );
  const pods = ofPods(assigned).map(
    ([uid, blocks]) => [uid, `{MemoryBlocks:([]state.Block)${blocksOf(blocks)}}`] as const,
  );
  return fnv32a(
    `(*state.MemoryManagerCheckpoint){PolicyName:(string)${policy} MachineState:(state.NUMANodeMap)${dumpMap(nodes)}` +
      ` Entries:(state.ContainerMemoryAssignments)${dumpMap(entries)}` +
      `${hasPods ? ` PodEntries:(state.PodMemoryAssignments)${dumpMap(pods)}` : ""} Checksum:(checksum.Checksum)0}`,
  );
}

function dumpNode({ assignments, group, tables }: NumaNodeState): string {
  const dumped = [...tables].map(([type, { total, systemReserved, allocatable, reserved, free }]) => {
    const amounts =
      `TotalMemSize:(uint64)${total} SystemReserved:(uint64)${systemReserved} Allocatable:(uint64)${allocatable}` +
      ` Reserved:(uint64)${reserved} Free:(uint64)${free}`;
    return [type, `<*>{${amounts}}`] as const;
  });
  const cells = dumpList(idsOfNodes(group));
  return `<*>{NumberOfAssignments:(int)${assignments} MemoryMap:(map[v1.ResourceName]*state.MemoryTable)${dumpMap(dumped)} Cells:([]int)${cells}}`;
}

function dumpBlock({ nodes, type, bytes }: MemoryBlock): string {
  return `{NUMAAffinity:([]int)${dumpList(idsOfNodes(nodes))} Type:(v1.ResourceName)${type} Size:(uint64)${bytes}}`;
}

/** Parses the kubelet's file memory_manager_state. @returns undefined if it is corrupt. (kubelet,
 *  cm/memorymanager/state/checkpoint.go) */
export function parseMemoryState(text: string): SavedMemory | undefined {
  const file = recordIn(text);
  const state = file && stateOf(file);
  const expected = [false, true].map((hasPods) => state && checksumOf(state, hasPods));
  return isIntact(file?.["checksum"], expected) ? state : undefined;
}

/** Parses the file that graftlet wrote before version 0.2: a version, and the kubelet's fields. @returns undefined if it is corrupt. */
function parseFormerState(text: string): SavedMemory | undefined {
  const file = recordIn(text);
  return file?.["version"] === 1 ? stateOf(file) : undefined;
}

function stateOf(file: Record<string, unknown>): SavedMemory | undefined {
  const { policyName, machineState, entries, podEntries } = file;
  const machine = mapOf(machineState, numaNodeOf);
  const containers = mapOf(entries, (pod): PodMemory | undefined => mapOf(pod, (blocks) => listOf(blocks, blockOf)));
  const pods = mapOf(podEntries, (pod) => listOf(recordOf(pod)?.["memoryBlocks"], blockOf));
  const assigned = containers && pods && new Map(containers);
  for (const [uid, blocks] of pods ?? [])
    assigned?.set(uid, new Map([...(assigned.get(uid) ?? []), [wholePod, blocks]]));
  const ids = machine && [...machine.keys()].map(Number);
  if (typeof policyName !== "string" || !machine || !assigned || !ids?.every(isNumaNode)) return undefined;
  const nodes: MachineState = new Map([...machine].map(([id, node]) => [Number(id), node]));
  return { policy: policyName, machine: nodes, assigned };
}

function numaNodeOf(value: unknown): NumaNodeState | undefined {
  const node = recordOf(value);
  const assignments = amountOf(node?.["numberOfAssignments"]);
  const group = nodesOf(node?.["cells"]);
  const tables = mapOf(node?.["memoryMap"], tableOf);
  return assignments === undefined || group === undefined || !tables ? undefined : { assignments, group, tables };
}

function tableOf(value: unknown): MemoryTable | undefined {
  const of = recordOf(value);
  const amounts = ["total", "systemReserved", "allocatable", "reserved", "free"].map((name) => amountOf(of?.[name]));
  const [total, systemReserved, allocatable, reserved, free] = amounts;
  if (total === undefined || systemReserved === undefined || allocatable === undefined) return undefined;
  return reserved === undefined || free === undefined
    ? undefined
    : { total, systemReserved, allocatable, reserved, free };
}

function blockOf(value: unknown): MemoryBlock | undefined {
  const block = recordOf(value);
  const nodes = nodesOf(block?.["numaAffinity"]);
  const [type, bytes] = [block?.["type"], amountOf(block?.["size"])];
  return typeof type !== "string" || bytes === undefined || !nodes ? undefined : { nodes, type, bytes };
}

function nodesOf(value: unknown): NumaNodes | undefined {
  const ids = listOf(value, (id) => (isNumaNode(id) ? id : undefined));
  return ids && numaNodes(ids);
}

function isNumaNode(value: unknown): value is number {
  return Number.isInteger(value) && Number(value) >= 0 && Number(value) <= maxNumaNode;
}

function amountOf(value: unknown): number | undefined {
  return Number.isSafeInteger(value) && Number(value) >= 0 ? Number(value) : undefined;
}

/** Converts the items of a list. @returns undefined if an item is invalid; an empty list if the list is missing. */
function listOf<T>(value: unknown, itemOf: (item: unknown) => T | undefined): readonly T[] | undefined {
  const items = (Array.isArray(value) ? value : []).map(itemOf);
  const right = items.filter((item) => item !== undefined);
  return right.length === items.length ? right : undefined;
}

/** Converts the values of a map. @returns undefined if a value is invalid; an empty map if the map is missing. */
function mapOf<T>(value: unknown, valueOf: (value: unknown) => T | undefined): ReadonlyMap<string, T> | undefined {
  const map = new Map<string, T>();
  for (const [name, wire] of entriesOf(value)) {
    const right = valueOf(wire);
    if (right === undefined) return undefined;
    map.set(name, right);
  }
  return map;
}
