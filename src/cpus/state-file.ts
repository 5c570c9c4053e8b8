import { cpuCheckpoint, ownDirectory } from "../host/layout.ts";
import { replaceFile } from "../host/replace-file.ts";
import { readSavedState } from "../host/saved-state.ts";
import { type CpuSet, formatCpus, parseCpuList } from "../lib/cpu-set.ts";
import type { Logger } from "../lib/log.ts";
import { entriesOf, recordIn } from "../lib/record.ts";
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

const version = 1;

function stateFile(rootDir: string): string {
  return `${ownDirectory(rootDir)}/cpus.json`;
}

/** Reads the state in a root directory: graftlet's own, or else that of a kubelet that had the directory before. A corrupt file counts as no
 *  state: CPUs are then assigned from scratch. Changes nothing on the target.
 *  @returns undefined without a state. @throws if the target cannot be read. */
export async function readState(
  fs: Pick<HostFs, "readFile">,
  rootDir: string,
  log: Logger,
  signal: AbortSignal,
): Promise<SavedState | undefined> {
  const sources = {
    own: { file: stateFile(rootDir), parse: parseState },
    kubelets: { file: cpuCheckpoint(rootDir), parse: parseKubeletState },
  };
  const found = await readSavedState(fs, sources, signal);
  if (!found) return undefined;
  const { file, state } = found;
  if (!state) log.warn({ file }, "cannot parse the state of the CPU manager; assigning CPUs from scratch");
  return state && { file, ...state };
}

/** Atomically replaces the state. */
export async function writeState(
  fs: Pick<HostFs, "apply">,
  rootDir: string,
  { policy, shared, assigned }: CpuState,
  signal: AbortSignal,
): Promise<void> {
  const pods = Object.fromEntries(
    [...assigned].map(([uid, containers]) => [
      uid,
      Object.fromEntries([...containers].map(([name, cpus]) => [name, formatCpus(cpus)])),
    ]),
  );
  const data = `${JSON.stringify({ version, policy, shared: formatCpus(shared), pods })}\n`;
  await fs.apply(replaceFile(stateFile(rootDir), data, 0o600), signal);
}

/** Parses graftlet's own file. @returns undefined for a corrupt file. */
export function parseState(text: string): CpuState | undefined {
  const file = recordIn(text);
  return file?.["version"] === version ? stateOf(file["policy"], file["shared"], file["pods"]) : undefined;
}

/** Parses a kubelet's cpu_manager_state: fields `policyName`, `defaultCpuSet` and `entries`.
 *  (kubelet, cm/cpumanager/state/checkpoint.go) @returns undefined for a corrupt file. */
export function parseKubeletState(text: string): CpuState | undefined {
  const file = recordIn(text);
  return file && stateOf(file["policyName"], file["defaultCpuSet"], file["entries"]);
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
