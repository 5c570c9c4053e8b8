import { stateFilesOf } from "../host/layout.ts";
import { isIntact, readSavedState, replaceState } from "../host/saved-state.ts";
import { type CpuSet, formatCpus, parseCpuList } from "../lib/cpu-set.ts";
import { dumpMap } from "../lib/go-dump.ts";
import type { Logger } from "../lib/log.ts";
import { entriesOf, recordIn } from "../lib/record.ts";
import { fnv32a } from "../pod/hash.ts";
import type { HostFs } from "../seams/host.ts";
import type { Assignments } from "./static-policy.ts";

/** The CPU manager's state, as written before a restart. */
export interface CpuState {
  readonly policy: string;
  /** CPUs of containers without exclusive CPUs; empty before the first start with the static policy. */
  readonly shared: CpuSet;
  readonly assigned: Assignments;
}

/** A state, and the file that it was read from. */
export interface SavedState extends CpuState {
  readonly file: string;
}

/** Reads the state in a root directory. A corrupt file counts as no state: CPUs are then assigned from scratch. Changes nothing on the target.
 *  @returns undefined without a state. @throws if the target cannot be read. */
export async function readState(
  fs: Pick<HostFs, "readFile">,
  rootDir: string,
  log: Logger,
  signal: AbortSignal,
): Promise<SavedState | undefined> {
  const parse = { current: parseState, former: parseFormerState };
  const found = await readSavedState(fs, stateFilesOf(rootDir, "cpus"), parse, signal);
  if (!found) return undefined;
  const { file, state } = found;
  if (!state) log.warn({ file }, "cannot parse the state of the CPU manager; assigning CPUs from scratch");
  return state && { file, ...state };
}

/** Atomically replaces the state. @param state undefined: removes it. */
export async function writeState(
  fs: Pick<HostFs, "apply">,
  rootDir: string,
  state: CpuState | undefined,
  signal: AbortSignal,
): Promise<void> {
  await fs.apply(replaceState(stateFilesOf(rootDir, "cpus"), state && encodeState(state)), signal);
}

function encodeState(state: CpuState): string {
  const { policy, shared, assigned } = state;
  const entries = Object.fromEntries(
    [...assigned].map(([uid, containers]) => [
      uid,
      Object.fromEntries([...containers].map(([name, cpus]) => [name, formatCpus(cpus)])),
    ]),
  );
  const file = { policyName: policy, defaultCpuSet: formatCpus(shared), entries, checksum: checksumOf(state) };
  return JSON.stringify(file);
}

/** Parses a cpu_manager_state, the kubelet's file. (kubelet, cm/cpumanager/state/checkpoint.go) @returns undefined for a corrupt one. */
export function parseState(text: string): CpuState | undefined {
  const file = recordIn(text);
  const state = file && stateOf(file["policyName"], file["defaultCpuSet"], file["entries"]);
  return state && isIntact(file["checksum"], checksumOf(state)) ? state : undefined;
}

/** Parses the file that graftlet wrote before version 0.2. @returns undefined for a corrupt one. */
function parseFormerState(text: string): CpuState | undefined {
  const file = recordIn(text);
  return file?.["version"] === 1 ? stateOf(file["policy"], file["shared"], file["pods"]) : undefined;
}

/** FNV-1a over Go's typed dump of the state. */
function checksumOf({ policy, shared, assigned }: CpuState): number {
  const pods = [...assigned].map(
    ([uid, containers]) => [uid, dumpMap([...containers].map(([name, cpus]) => [name, formatCpus(cpus)]))] as const,
  );
  return fnv32a(
    `(*state.CPUManagerCheckpoint){PolicyName:(string)${policy} DefaultCPUSet:(string)${formatCpus(shared)}` +
      ` Entries:(map[string]map[string]string)${dumpMap(pods)} Checksum:(checksum.Checksum)0}`,
  );
}

function stateOf(policy: unknown, sharedText: unknown, pods: unknown): CpuState | undefined {
  const shared = cpusIn(sharedText);
  if (typeof policy !== "string" || !shared) return undefined;
  const assigned = new Map<string, ReadonlyMap<string, CpuSet>>();
  for (const [uid, entries] of entriesOf(pods)) {
    const containers = new Map<string, CpuSet>();
    for (const [name, list] of entriesOf(entries)) {
      const cpus = cpusIn(list);
      if (!cpus) return undefined;
      containers.set(name, cpus);
    }
    assigned.set(uid, containers);
  }
  return { policy, shared, assigned };
}

function cpusIn(list: unknown): CpuSet | undefined {
  return typeof list === "string" ? parseCpuList(list) : undefined;
}
