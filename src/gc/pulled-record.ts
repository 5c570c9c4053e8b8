import { ownDirectory } from "../host/ownership-record.ts";
import { replaceFile } from "../host/replace-file.ts";
import { hasCode } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import { entriesOf, recordIn } from "../lib/record.ts";
import type { HostFs } from "../seams/host.ts";

/** A root directory's record of the images that its node pulled, where others use the runtime too. Names are full ones. */
export interface PulledRecord {
  /** ID of the image that each name was pulled for. */
  readonly pulled: ReadonlyMap<string, string>;
  /** Names whose pull has begun, with the names of the same repository that were there before. */
  readonly begun: ReadonlyMap<string, readonly string[]>;
}

const version = 1;
const maxBytes = 16 * 2 ** 20;

function recordFile(rootDir: string): string {
  return `${ownDirectory(rootDir)}/images.json`;
}

/** The record of a root directory; empty where there is none. One that is torn is set aside: its images are nobody's that this node
 *  knows, and stay. @throws when the target cannot be read. */
export async function readPulledRecord(
  fs: Pick<HostFs, "readFile" | "apply">,
  rootDir: string,
  log: Logger,
  signal: AbortSignal,
): Promise<PulledRecord> {
  const file = recordFile(rootDir);
  let text: string;
  try {
    text = (await fs.readFile(file, { maxBytes, signal })).toString("utf8");
  } catch (error) {
    if (hasCode(error, "not_found")) return { pulled: new Map(), begun: new Map() };
    if (!hasCode(error, "failed_precondition", "resource_exhausted")) throw error;
    text = "";
  }
  const record = contentOf(text);
  if (record) return record;
  log.warn({ file }, "the record of pulled images cannot be read: it is set aside, and their images stay");
  await fs.apply([{ do: "rename", from: file, to: `${file}.torn` }], signal);
  return { pulled: new Map(), begun: new Map() };
}

/** Replaces the record in one step. */
export async function writePulledRecord(
  fs: Pick<HostFs, "apply">,
  rootDir: string,
  { pulled, begun }: PulledRecord,
  signal: AbortSignal,
): Promise<void> {
  const file = recordFile(rootDir);
  const content = { version, pulled: Object.fromEntries(pulled), begun: Object.fromEntries(begun) };
  await fs.apply(replaceFile(file, `${JSON.stringify(content)}\n`, 0o600), signal);
}

/** Undefined for what is no record. */
function contentOf(text: string): PulledRecord | undefined {
  const content = recordIn(text);
  if (content?.["version"] !== version) return undefined;
  const pulled = entriesOf(content["pulled"]).flatMap(([name, id]) =>
    typeof id === "string" ? [[name, id] as const] : [],
  );
  const begun = entriesOf(content["begun"]).flatMap(([name, others]) =>
    Array.isArray(others) ? [[name, others.filter((other) => typeof other === "string")] as const] : [],
  );
  return { pulled: new Map(pulled), begun: new Map(begun) };
}
