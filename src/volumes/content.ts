import { createHash } from "node:crypto";
import { posix } from "node:path";
import { CodedError } from "../lib/errors.ts";
import type { ConfigMap, Secret } from "../objects.ts";

export interface ContentFile {
  readonly data: Uint8Array;
  readonly mode: number;
  /** Owner; root when absent. */
  readonly uid?: number;
  /** Group; root's when absent. */
  readonly gid?: number;
}

/** Files of a volume by path relative to it. */
export type VolumeContent = ReadonlyMap<string, ContentFile>;

export interface KeyItem {
  readonly key: string;
  readonly path: string;
  readonly mode?: number;
}

/** Mapping of an object's keys to file paths. */
export interface KeySelection {
  /** Selected keys; undefined selects all keys, each as a file of the same name. */
  readonly items: readonly KeyItem[] | undefined;
  readonly defaultMode: number;
  readonly optional: boolean;
}

/** The files of a config map. @throws not_found when a key is missing, in the kubelet's words. */
export function configMapContent(map: ConfigMap | undefined, selection: KeySelection): VolumeContent {
  const text = Object.entries(map?.data ?? {}).map(([key, value]) => [key, Buffer.from(value)] as const);
  const binary = Object.entries(map?.binaryData ?? {}).map(
    ([key, value]) => [key, Buffer.from(value, "base64")] as const,
  );
  return selectKeys(
    new Map([...text, ...binary]),
    selection,
    (key) => `configmap references non-existent config key: ${key}`,
  );
}

/** The files of a secret. @throws not_found when a key is missing, in the kubelet's words. */
export function secretContent(secret: Secret | undefined, selection: KeySelection): VolumeContent {
  const data = Object.entries(secret?.data ?? {}).map(([key, value]) => [key, Buffer.from(value, "base64")] as const);
  return selectKeys(new Map(data), selection, (key) => `references non-existent secret key: ${key}`);
}

function selectKeys(
  data: ReadonlyMap<string, Buffer>,
  { items, defaultMode, optional }: KeySelection,
  missing: (key: string) => string,
): VolumeContent {
  if (!items?.length)
    return new Map([...data].map(([key, bytes]) => [cleanPath(key), { data: bytes, mode: defaultMode }]));
  const files = new Map<string, ContentFile>();
  for (const { key, path, mode } of items) {
    const bytes = data.get(key);
    if (bytes) files.set(cleanPath(path), { data: bytes, mode: mode ?? defaultMode });
    else if (!optional) throw new CodedError("not_found", missing(key));
  }
  return files;
}

const maxPathLength = 4096;
const maxNameLength = 255;

/** Cleans a path inside a volume that comes from a spec: relative, without `..`, and not a name that the atomic writer uses.
 *  @throws invalid_argument, in the kubelet's words. */
export function cleanPath(path: string): string {
  const names = path.split("/");
  if (path === "") throw invalid(`must not be empty: ""`);
  if (path.startsWith("/")) throw invalid(`must be relative path: ${path}`);
  if (Buffer.byteLength(path) > maxPathLength)
    throw invalid(`must be less than or equal to ${maxPathLength} characters`);
  if (names.includes("..")) throw invalid(`must not contain '..': ${path}`);
  if (names.some((name) => Buffer.byteLength(name) > maxNameLength))
    throw invalid(`filenames must be less than or equal to ${maxNameLength} characters`);
  const clean = posix.normalize(path).replace(/\/$/, "");
  if (clean.startsWith("..")) throw invalid(`must not start with '..': ${path}`);
  if (clean === ".") throw invalid(`must name a file: ${path}`);
  return clean;
}

function invalid(why: string): CodedError {
  return new CodedError("invalid_argument", `invalid path: ${why}`);
}

/** Merges the files of several sources; on equal paths the later source wins.
 *  @throws invalid_argument if a path is a file in one source and a directory in another. */
export function mergeContents(parts: readonly VolumeContent[]): VolumeContent {
  const files = new Map(parts.flatMap((part) => [...part]));
  for (const path of files.keys()) {
    const names = path.split("/").slice(0, -1);
    const clash = names.map((_, depth) => names.slice(0, depth + 1).join("/")).find((above) => files.has(above));
    if (clash === undefined) continue;
    throw new CodedError(
      "invalid_argument",
      `${clash} is a file in one source and a directory in another, which contains ${path}: change one of the paths`,
    );
  }
  return files;
}

/** Limit on the total size of a volume's files: items can repeat one value many times. */
const maxTotalBytes = 64 * 1024 * 1024;

/** @throws resource_exhausted if the files exceed the limit. */
export function checkContentSize(content: VolumeContent): void {
  const sum = [...content.values()].reduce((bytes, { data }) => bytes + data.length, 0);
  if (sum > maxTotalBytes)
    throw new CodedError(
      "resource_exhausted",
      `its files total ${sum} bytes, more than ${maxTotalBytes}: select fewer items, or split them over several volumes`,
    );
}

/** Digest of the files, kept instead of the files so that secrets do not stay in memory. */
export function contentDigest(content: VolumeContent): string {
  const hash = createHash("sha256");
  for (const [path, { data, mode, uid, gid }] of [...content].sort(([a], [b]) => (a < b ? -1 : 1))) {
    hash.update(JSON.stringify([path, mode, uid ?? 0, gid ?? 0, data.length])).update(data);
  }
  return hash.digest("hex");
}
