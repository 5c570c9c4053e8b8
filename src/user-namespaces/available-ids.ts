import { hasCode } from "../lib/errors.ts";
import { command } from "../seams/command.ts";
import type { Host } from "../seams/host.ts";
import type { IdRange } from "./id-ranges.ts";

/** The user whose subordinate IDs pods may use. */
const user = "kubelet";
const allIds = 2 ** 32;

export interface IdSettings {
  /** KubeletConfiguration.userNamespaces.idsPerPod. */
  readonly idsPerPod: number;
  readonly maxPods: number;
}

/** Reads which of the target's IDs pods may use: the subordinate IDs of the user `kubelet`; without that user or the program `getsubids`,
 *  all IDs except those of the target itself. @throws Error in the kubelet's words for IDs with which a kubelet would not start.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/user-namespaces/#set-up-a-node-to-support-user-namespaces */
export async function readAvailableIds(
  host: Pick<Host, "run">,
  settings: IdSettings,
  signal: AbortSignal,
): Promise<IdRange> {
  const { idsPerPod } = settings;
  const ids = (await subordinateIds(host, signal)) ?? { first: idsPerPod, length: allIds - idsPerPod };
  checkIds(ids, settings);
  return withoutLastId(ids, idsPerPod);
}

/** No range may contain the last ID, which means "no ID": the kernel refuses such a mapping with EINVAL.
 *  @see https://man7.org/linux/man-pages/man7/user_namespaces.7.html */
function withoutLastId({ first, length }: IdRange, idsPerPod: number): IdRange {
  return { first, length: first + length === allIds ? length - idsPerPod : length };
}

async function subordinateIds(host: Pick<Host, "run">, signal: AbortSignal): Promise<IdRange | undefined> {
  if ((await host.run(command("id", ["-u"], [user]), { signal })).code !== 0) return undefined;
  const uids = await getSubordinateIds(host, command("getsubids", [], [user]), signal);
  if (uids === undefined) return undefined;
  if (uids.code !== 0) throw new Error(`error retrieving additional uids for user "${user}": exit status ${uids.code}`);
  const gids = await getSubordinateIds(host, command("getsubids", ["-g"], [user]), signal);
  if (gids?.code !== 0) throw new Error(`error retrieving additional gids for user "${user}"`);
  if (uids.stdout !== gids.stdout) throw new Error(`mismatched subuids and subgids for user "${user}"`);
  return parseSubordinateIds(uids.stdout);
}

/** @returns undefined if the program is missing. */
async function getSubordinateIds(host: Pick<Host, "run">, argv: ReturnType<typeof command>, signal: AbortSignal) {
  try {
    return await host.run(argv, { signal });
  } catch (error) {
    if (hasCode(error, "not_found")) return undefined;
    throw error;
  }
}

/** Parses the output of getsubids, such as `0: kubelet 65536 7208960`. @throws Error in the kubelet's words. */
export function parseSubordinateIds(output: string): IdRange {
  const lines = output.replaceAll(/^\n+|\n+$/g, "").split("\n");
  if (lines.length !== 1)
    throw new Error(`error parsing line ${JSON.stringify(output)}: it must contain only one line`);
  const fields = (lines[0] ?? "").trim().split(/\s+/);
  if (fields.length !== 4) throw new Error(`invalid line ${JSON.stringify(output)}`);
  const [first, length] = fields.slice(2).map((field) => {
    const id = Number(field);
    if (/^\d+$/.test(field) && id < allIds) return id;
    throw new Error(`error parsing line ${JSON.stringify(output)}: ${JSON.stringify(field)} is not an ID`);
  });
  return { first: first ?? 0, length: length ?? 0 };
}

/** (kubelet, MakeUserNsManager) */
function checkIds({ first, length }: IdRange, { idsPerPod, maxPods }: IdSettings): void {
  if (first % idsPerPod !== 0) throw new Error(`kubelet user assigned ID ${first} is not a multiple of ${idsPerPod}`);
  // The IDs of the target itself must not be mapped.
  if (first < idsPerPod) throw new Error(`kubelet user assigned ID ${first} must be greater or equal to ${idsPerPod}`);
  if (length % idsPerPod !== 0)
    throw new Error(`kubelet user assigned IDs length ${length} is not a multiple of ${idsPerPod}`);
  if (length / idsPerPod < maxPods)
    throw new Error(`kubelet user assigned IDs are not enough to support ${maxPods} pods`);
}
