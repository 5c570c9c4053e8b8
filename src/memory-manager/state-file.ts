import { memoryCheckpoint, ownDirectory } from "../host/layout.ts";
import { replaceFile } from "../host/replace-file.ts";
import { readSavedState } from "../host/saved-state.ts";
import type { Logger } from "../lib/log.ts";
import { type NumaNodes, idsOfNodes, maxNumaNode, numaNodes } from "../lib/numa-nodes.ts";
import { entriesOf, recordIn, recordOf } from "../lib/record.ts";
import type { HostFs } from "../seams/host.ts";
import type { MachineState, MemoryBlock, MemoryTable, NumaNodeState } from "./machine-state.ts";
import type { MemoryState, PodMemory } from "./static-policy.ts";

/** The memory manager's state, as written before a restart. */
export interface SavedMemory extends MemoryState {
  readonly policy: string;
}

const version = 1;

/** Reads the state in a root directory: graftlet's own, or else that of a kubelet that had the directory before. A corrupt file counts as no
 *  state: memory is then allocated from scratch. Changes nothing on the target.
 *  @returns the state, and the file that it was read from; undefined without a state. @throws if the target cannot be read. */
export async function readState(
  fs: Pick<HostFs, "readFile">,
  rootDir: string,
  log: Logger,
  signal: AbortSignal,
): Promise<(SavedMemory & { readonly file: string }) | undefined> {
  const sources = {
    own: { file: stateFile(rootDir), parse: parseState },
    kubelets: { file: memoryCheckpoint(rootDir), parse: parseKubeletState },
  };
  const found = await readSavedState(fs, sources, signal);
  if (!found) return undefined;
  const { file, state } = found;
  if (!state) log.warn({ file }, "cannot parse the state of the memory manager; allocating memory from scratch");
  return state && { file, ...state };
}

/** Atomically replaces the state. */
export async function writeState(
  fs: Pick<HostFs, "apply">,
  rootDir: string,
  { machine, assigned }: MemoryState,
  signal: AbortSignal,
): Promise<void> {
  const machineState = Object.fromEntries(
    [...machine].map(([id, { assignments, group, tables }]) => [
      id,
      { numberOfAssignments: assignments, memoryMap: Object.fromEntries(tables), cells: idsOfNodes(group) },
    ]),
  );
  const entries = Object.fromEntries(
    [...assigned].map(([uid, containers]) => [
      uid,
      Object.fromEntries([...containers].map(([name, blocks]) => [name, blocks.map(blockToWire)])),
    ]),
  );
  const data = `${JSON.stringify({ version, policyName: "Static", machineState, entries })}\n`;
  await fs.apply(replaceFile(stateFile(rootDir), data, 0o600), signal);
}

function stateFile(rootDir: string): string {
  return `${ownDirectory(rootDir)}/memory.json`;
}

function blockToWire({ nodes, type, bytes }: MemoryBlock) {
  return { numaAffinity: idsOfNodes(nodes), type, size: bytes };
}

/** Parses graftlet's own file: a version, and the kubelet's fields. @returns undefined for a corrupt file. */
export function parseState(text: string): SavedMemory | undefined {
  const file = recordIn(text);
  return file?.["version"] === version ? stateOf(file) : undefined;
}

/** Parses a kubelet's memory_manager_state: fields `policyName`, `machineState` and `entries`.
 *  (kubelet, cm/memorymanager/state/checkpoint.go) @returns undefined for a corrupt file. */
export function parseKubeletState(text: string): SavedMemory | undefined {
  const file = recordIn(text);
  return file && stateOf(file);
}

function stateOf({ policyName, machineState, entries }: Record<string, unknown>): SavedMemory | undefined {
  const machine = mapOf(machineState, numaNodeOf);
  const assigned = mapOf(entries, (pod): PodMemory | undefined => mapOf(pod, (blocks) => listOf(blocks, blockOf)));
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

/** @returns undefined if an item is invalid; an empty list for a missing one. */
function listOf<T>(value: unknown, itemOf: (item: unknown) => T | undefined): readonly T[] | undefined {
  const items = (Array.isArray(value) ? value : []).map(itemOf);
  const right = items.filter((item) => item !== undefined);
  return right.length === items.length ? right : undefined;
}

/** @returns undefined if a value is invalid; an empty map for a missing one. */
function mapOf<T>(value: unknown, valueOf: (value: unknown) => T | undefined): ReadonlyMap<string, T> | undefined {
  const map = new Map<string, T>();
  for (const [name, wire] of entriesOf(value)) {
    const right = valueOf(wire);
    if (right === undefined) return undefined;
    map.set(name, right);
  }
  return map;
}
