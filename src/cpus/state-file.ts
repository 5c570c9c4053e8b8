import { stateFilesOf } from "../host/layout.ts";
import { isIntact, readSavedState, replaceState } from "../host/saved-state.ts";
import { type CpuSet, formatCpus, parseCpuList } from "../lib/cpu-set.ts";
import { dumpMap } from "../lib/go-dump.ts";
import type { Logger } from "../lib/log.ts";
import { entriesOf, recordIn, recordOf } from "../lib/record.ts";
import { fnv32a } from "../pod/hash.ts";
import { wholePod } from "../pod/pinned-resources.ts";
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
export async function readCpuState(
  fs: Pick<HostFs, "readFile">,
  rootDir: string,
  log: Logger,
  signal: AbortSignal,
): Promise<SavedState | undefined> {
  const parse = { current: parseCpuState, former: parseFormerState };
  const found = await readSavedState(fs, stateFilesOf(rootDir, "cpus"), parse, signal);
  if (!found) return undefined;
  const { file, state } = found;
  if (!state) log.warn({ file }, "cannot parse the state of the CPU manager; assigning CPUs from scratch");
  return state && { file, ...state };
}

/** Atomically replaces the state. @param state undefined: removes it. */
export async function writeCpuState(
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
    ofContainers(assigned).map(([uid, own]) => [
      uid,
      Object.fromEntries(own.map(([name, cpus]) => [name, formatCpus(cpus)])),
    ]),
  );
  const whole = ofPods(assigned);
  const podEntries = Object.fromEntries(whole.map(([uid, cpus]) => [uid, { cpuSet: formatCpus(cpus) }]));
  return JSON.stringify({
    policyName: policy,
    defaultCpuSet: formatCpus(shared),
    entries,
    ...(whole.length > 0 && { podEntries }),
    checksum: checksumOf(state, whole.length > 0),
  });
}

/** Parses the kubelet's file cpu_manager_state. @returns undefined if it is corrupt. (kubelet, cm/cpumanager/state/checkpoint.go) */
export function parseCpuState(text: string): CpuState | undefined {
  const file = recordIn(text);
  const state =
    file && withPods(stateOf(file["policyName"], file["defaultCpuSet"], file["entries"]), file["podEntries"]);
  const expected = [false, true].map((hasPods) => state && checksumOf(state, hasPods));
  return isIntact(file?.["checksum"], expected) ? state : undefined;
}

/** Adds the CPUs that whole pods have. @returns undefined if an entry is corrupt. */
function withPods(state: CpuState | undefined, entries: unknown): CpuState | undefined {
  const assigned = new Map(state?.assigned);
  for (const [uid, entry] of entriesOf(entries)) {
    const cpus = cpusIn(recordOf(entry)?.["cpuSet"] ?? "");
    if (!cpus) return undefined;
    assigned.set(uid, new Map([...(assigned.get(uid) ?? []), [wholePod, cpus]]));
  }
  return state && { ...state, assigned };
}

/** CPUs by pod and container, without the CPUs that whole pods have. */
function ofContainers(assigned: Assignments) {
  return [...assigned].flatMap(([uid, own]) => {
    const containers = [...own].filter(([name]) => name !== wholePod);
    return containers.length > 0 ? [[uid, containers] as const] : [];
  });
}

function ofPods(assigned: Assignments): readonly (readonly [uid: string, cpus: CpuSet])[] {
  return [...assigned].flatMap(([uid, own]) =>
    [...own].flatMap(([name, cpus]) => (name === wholePod ? [[uid, cpus]] : [])),
  );
}

/** Parses the file that graftlet wrote before version 0.2. @returns undefined if it is corrupt. */
function parseFormerState(text: string): CpuState | undefined {
  const file = recordIn(text);
  return file?.["version"] === 1 ? stateOf(file["policy"], file["shared"], file["pods"]) : undefined;
}

/** FNV-1a over Go's typed dump of the state. @param hasPods true if the file has entries for whole pods, as in the third version of
 *  the kubelet's format. */
function checksumOf({ policy, shared, assigned }: CpuState, hasPods: boolean): number {
  const entries = ofContainers(assigned).map(
    ([uid, own]) => [uid, dumpMap(own.map(([name, cpus]) => [name, formatCpus(cpus)]))] as const,
  );
  const pods = ofPods(assigned).map(([uid, cpus]) => {
    const ids = [...cpus].map((cpu) => [cpu, "{}"] as const);
    return [uid, `{CPUSet:(cpuset.CPUSet){elems:(map[int]struct {})${dumpMap(ids)}}}`] as const;
  });
  return fnv32a(
    `(*state.CPUManagerCheckpoint){PolicyName:(string)${policy} DefaultCPUSet:(string)${formatCpus(shared)}` +
      ` Entries:(map[string]map[string]string)${dumpMap(entries)}` +
      `${hasPods ? ` PodEntries:(state.PodCPUAssignments)${dumpMap(pods)}` : ""} Checksum:(checksum.Checksum)0}`,
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
