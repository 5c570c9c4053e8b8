import { ownDirectory } from "../host/ownership-record.ts";
import { replaceFile } from "../host/replace-file.ts";
import { hasCode } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import { entriesOf, recordIn } from "../lib/record.ts";
import type { HostFs } from "../seams/host.ts";

/** Images that this node pulled into a runtime that it shares with others, recorded in its root directory. Names are fully qualified. */
export interface PulledNames {
  /** Image ID by pulled name. */
  readonly pulled: ReadonlyMap<string, string>;
  /** Names whose pull has begun, each with the names in the same repository that existed before. */
  readonly begun: ReadonlyMap<string, readonly string[]>;
}

const version = 1;
const maxBytes = 16 * 2 ** 20;

function recordFile(rootDir: string): string {
  return `${ownDirectory(rootDir)}/images.json`;
}

/** Reads the record; empty if there is none. A corrupt record is renamed, and images listed only there are never collected.
 *  @throws when the target cannot be read. */
export async function readPulledNames(
  fs: Pick<HostFs, "readFile" | "apply">,
  rootDir: string,
  log: Logger,
  signal: AbortSignal,
): Promise<PulledNames> {
  const file = recordFile(rootDir);
  let text: string;
  try {
    text = (await fs.readFile(file, { maxBytes, signal })).toString("utf8");
  } catch (error) {
    if (hasCode(error, "not_found")) return { pulled: new Map(), begun: new Map() };
    if (!hasCode(error, "failed_precondition", "resource_exhausted")) throw error;
    text = "";
  }
  const record = parseRecord(text);
  if (record) return record;
  log.warn({ file }, "record of pulled images is corrupt; renamed it, and its images will not be removed");
  await fs.apply([{ kind: "rename", from: file, to: `${file}.torn` }], signal);
  return { pulled: new Map(), begun: new Map() };
}

/** Replaces the record atomically. */
export async function writePulledNames(
  fs: Pick<HostFs, "apply">,
  rootDir: string,
  { pulled, begun }: PulledNames,
  signal: AbortSignal,
): Promise<void> {
  const file = recordFile(rootDir);
  const content = { version, pulled: Object.fromEntries(pulled), begun: Object.fromEntries(begun) };
  await fs.apply(replaceFile(file, `${JSON.stringify(content)}\n`, 0o600), signal);
}

/** Undefined if the text is not a valid record. */
function parseRecord(text: string): PulledNames | undefined {
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
