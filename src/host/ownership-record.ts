import { posix } from "node:path";
import { hasCode, ignoreCode } from "../lib/errors.ts";
import type { HostFs } from "../seams/host.ts";
import { replaceFile } from "./replace-file.ts";
import { ownDirectory } from "./layout.ts";

/** A root directory's record of the node that owns it. */
export interface OwnershipRecord {
  readonly node: string;
  /** The GraftedNode that configures the node; absent for others, and for nodes that predate this field. */
  readonly object?: OwningObject;
  /** Directories that the node created: removed with the node if they are empty. */
  readonly made: readonly string[];
  /** Files outside the root directory that the node wrote. */
  readonly files?: readonly string[];
  /** The pod network mode chosen if the configuration leaves it open; absent for nodes that predate this field. */
  readonly network?: NetworkDecision;
}

/** A GraftedNode, which may be of another namespace or cluster. */
export interface OwningObject {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
}

/** `new`: not decided yet. */
export type NetworkDecision =
  | { readonly is: "new" }
  | { readonly is: "tunneled" }
  | { readonly is: "isolated"; readonly obstacle: string };

const version = 1;

function recordFile(rootDir: string): string {
  return `${ownDirectory(rootDir)}/node.json`;
}

/** Reads the record of a root directory; undefined if missing or unreadable. */
export async function readOwnershipRecord(
  fs: Pick<HostFs, "readFile">,
  rootDir: string,
  signal: AbortSignal,
): Promise<OwnershipRecord | undefined> {
  const reading = fs.readFile(recordFile(rootDir), { maxBytes: 64 * 1024, signal });
  const file = await ignoreCode(reading, "not_found", "failed_precondition", "resource_exhausted");
  return file && parseRecord(file.toString("utf8"));
}

/** True if there is no record, not even a corrupt one. */
export function isUnrecorded(fs: Pick<HostFs, "lstat">, rootDir: string, signal: AbortSignal): Promise<boolean> {
  return isMissing(fs, recordFile(rootDir), signal);
}

/** Atomically replaces the record. */
export async function writeOwnershipRecord(
  fs: Pick<HostFs, "apply">,
  rootDir: string,
  record: OwnershipRecord,
  signal: AbortSignal,
): Promise<void> {
  const file = recordFile(rootDir);
  const data = `${JSON.stringify({ version, ...record })}\n`;
  await fs.apply(replaceFile(file, data, 0o600), signal);
}

/** Records a file that the node is about to write outside its root directory, and the directories it creates for it. An
 *  existing file has another owner and is not recorded. */
export async function recordOwnFile(
  fs: Pick<HostFs, "apply" | "readFile" | "lstat">,
  rootDir: string,
  file: string,
  signal: AbortSignal,
): Promise<void> {
  const record = await readOwnershipRecord(fs, rootDir, signal);
  if (!record || !(await isMissing(fs, file, signal))) return;
  const directories = await missingDirectories(fs, [posix.dirname(file)], signal);
  const made = [...new Set([...record.made, ...directories])];
  const files = [...new Set([...(record.files ?? []), file])];
  await writeOwnershipRecord(fs, rootDir, { ...record, made, files }, signal);
}

/** The missing ones of these directories and their ancestors, shortest first. */
export async function missingDirectories(
  fs: Pick<HostFs, "lstat">,
  paths: readonly string[],
  signal: AbortSignal,
): Promise<readonly string[]> {
  const all = [...new Set(paths.flatMap(withAncestors))];
  const missing = await Promise.all(all.map((path) => isMissing(fs, path, signal)));
  return all.filter((_, index) => missing[index]).sort((a, b) => a.length - b.length);
}

async function isMissing(fs: Pick<HostFs, "lstat">, path: string, signal: AbortSignal): Promise<boolean> {
  try {
    await fs.lstat(path, signal);
    return false;
  } catch (error) {
    if (hasCode(error, "not_found")) return true;
    if (hasCode(error, "permission_denied")) return false;
    throw error;
  }
}

function withAncestors(path: string): string[] {
  return path === "/" || path === "." ? [] : [...withAncestors(posix.dirname(path)), path];
}

function parseRecord(text: string): OwnershipRecord | undefined {
  try {
    const record: unknown = JSON.parse(text);
    if (typeof record !== "object" || record === null) return undefined;
    const { node, object, made, files, network }: { [Field in keyof OwnershipRecord]?: unknown } = record;
    if (typeof node !== "string" || !Array.isArray(made)) return undefined;
    const owner = parseObject(object);
    const decision = parseDecision(network);
    return {
      node,
      ...(owner && { object: owner }),
      made: absolutePathsIn(made),
      ...(Array.isArray(files) && { files: absolutePathsIn(files) }),
      ...(decision && { network: decision }),
    };
  } catch {
    return undefined;
  }
}

function parseObject(value: unknown): OwningObject | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  const { namespace, name, uid }: { [Field in keyof OwningObject]?: unknown } = value;
  return isName(namespace) && isName(name) && isName(uid) ? { namespace, name, uid } : undefined;
}

/** True for a text that is not longer than a name in Kubernetes. */
function isName(value: unknown): value is string {
  return typeof value === "string" && value.length <= 253;
}

function parseDecision(value: unknown): NetworkDecision | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  const { is, obstacle }: { is?: unknown; obstacle?: unknown } = value;
  if (is === "new" || is === "tunneled") return { is };
  return is === "isolated" && typeof obstacle === "string" ? { is, obstacle } : undefined;
}

function absolutePathsIn(list: readonly unknown[]): readonly string[] {
  return list.filter((path): path is string => typeof path === "string" && path.startsWith("/"));
}
