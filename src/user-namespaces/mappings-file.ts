import { podDirectory } from "../host/layout.ts";
import { messageOf } from "../lib/errors.ts";
import { recordOf } from "../lib/record.ts";
import { parseBoundedJson } from "../lib/bounded-text.ts";
import type { IdRange } from "./id-ranges.ts";

/** Maximum size of a mappings file; those of a kubelet have 150 bytes. */
export const maxMappingsBytes = 4096;

/** File with the ID mappings of a pod, at the kubelet's path in the pod's directory. */
export function mappingsFile(rootDir: string, uid: string): string {
  return `${podDirectory(rootDir, uid)}/userns`;
}

/** The content of a pod's file: the kubelet's, which has the same mapping for users and groups. */
export function formatMappings({ first, length }: IdRange): string {
  const mappings = [{ hostId: first, containerId: 0, length }];
  return JSON.stringify({ uidMappings: mappings, gidMappings: mappings });
}

/** Parses a pod's file. @throws Error in the kubelet's words. (kubelet, parseUserNsFileAndRecord) */
export function parseMappings(text: string): IdRange {
  const { uidMappings, gidMappings } = fieldsOf(text);
  const uids = listOf(uidMappings);
  const gids = listOf(gidMappings);
  const [uid] = uids;
  const [gid] = gids;
  if (uids.length !== 1 || !uid) throw invalid("no more than one mapping allowed.");
  if (gids.length !== 1 || !gid) throw invalid("GID and UID mappings should be identical.");
  if (uid.hostId !== gid.hostId || uid.containerId !== gid.containerId || uid.length !== gid.length)
    throw invalid("GID and UID mapping should be identical");
  if (uid.containerId !== 0) throw invalid("UID 0 must be mapped");
  return { first: uid.hostId, length: uid.length };
}

function fieldsOf(text: string): Record<string, unknown> {
  try {
    return recordOf(parseBoundedJson(Buffer.from(text))) ?? {};
  } catch (error) {
    throw new Error(`invalid user namespace mappings file: ${messageOf(error)}`, { cause: error });
  }
}

function listOf(
  value: unknown,
): readonly { readonly hostId: number; readonly containerId: number; readonly length: number }[] {
  if (!Array.isArray(value)) return [];
  return value.map((entry: unknown) => {
    const { hostId, containerId, length } = recordOf(entry) ?? {};
    return { hostId: idOf(hostId), containerId: idOf(containerId), length: idOf(length) };
  });
}

/** An unsigned 32-bit field; a missing one is 0. */
function idOf(value: unknown = 0): number {
  if (typeof value === "number" && Number.isInteger(value) && value >= 0 && value < 2 ** 32) return value;
  throw new Error(`invalid user namespace mappings file: ${JSON.stringify(value)} is not an ID`);
}

function invalid(why: string): Error {
  return new Error(`invalid user namespace configuration: ${why}`);
}
