import { createHash } from "node:crypto";
import type { Clock } from "../lib/clock.ts";
import { hasCode, messageOf } from "../lib/errors.ts";
import type { Pod } from "../objects.ts";
import { podFullName } from "../pod/reference.ts";
import type { ManifestErrors } from "./manifest-errors.ts";
import { unusable } from "./manifest.ts";
import type { ManifestFile } from "./manifest-files.ts";
import { type ManifestReader, openManifestReader } from "./manifest-reader.ts";
import type { StaticPod } from "./static-pod.ts";

/** Gives a pod the UID under which another agent already runs it. */
export type Adopt = (found: StaticPod) => Pod;

export interface ManifestSetDeps {
  readonly nodeName: string;
  readonly adopt: Adopt;
  readonly complaints: ManifestErrors;
  readonly clock: Clock;
}

interface ParsedManifest {
  readonly text: string;
  /** Ignored fields. */
  readonly unknown: readonly string[];
  readonly pod: Pod;
}

/** Maximum number of fields in one warning. */
const maxNamedFields = 10;

/** Turns the contents of files into pods, and remembers previous contents. */
export function createManifestSet({ nodeName, adopt, complaints, clock }: ManifestSetDeps) {
  let held = new Map<string, ParsedManifest>();
  const readings = createParseCache(nodeName);
  let seen: readonly string[] = [];
  let first = true;

  /** Contents of the file, or its last valid contents. */
  const holdingOf = async (file: ManifestFile, round: Round): Promise<ParsedManifest | undefined> => {
    const before = held.get(file.path);
    try {
      if ("problem" in file) throw new Error(file.problem);
      return before?.text === file.text ? before : await readings.read(file, round);
    } catch (error) {
      round.signal.throwIfAborted();
      const instead = before ? `; pod ${podFullName(before.pod)}, which it contained before, keeps running` : "";
      complaints.report(file.path, `${messageOf(error)}${instead}`);
      return before;
    }
  };

  const taken = (path: string, { unknown }: ParsedManifest) => {
    if (unknown.length === 0) complaints.clear(path);
    else {
      const more = unknown.length > maxNamedFields ? ` and ${unknown.length - maxNamedFields} more` : "";
      complaints.warn(path, `unknown fields: ${unknown.slice(0, maxNamedFields).join(", ")}${more}`);
    }
  };

  return {
    /** True if the file's contents are unchanged since the last read. */
    isUnchanged: (file: ManifestFile) => "text" in file && held.get(file.path)?.text === file.text,
    /** The pods of these files, which are the complete set. A file that becomes invalid keeps the pod that it contained. */
    async podsOf(files: readonly ManifestFile[], signal: AbortSignal) {
      await using reader = openManifestReader(clock);
      const round: Round = { reader, signal, adopt: first ? adopt : ({ pod }) => pod };
      const holdings: ManifestWithPod[] = [];
      for (const file of files) {
        const holding = await holdingOf(file, round);
        if (holding) holdings.push({ path: file.path, name: podFullName(holding.pod), holding });
      }
      const now = new Map<string, ParsedManifest>();
      const holders = new Map<string, string>();
      const uids = new Map<string, string>();
      // If two files contain the same pod, the file that contained it first takes precedence.
      for (const { path, name, holding } of ordered(holdings, held)) {
        const { uid } = holding.pod.metadata;
        const other = holders.get(name);
        const otherOfUid = uids.get(uid);
        if (other !== undefined)
          complaints.report(path, `pod ${name} is already defined in ${other}: give it another name`);
        else if (otherOfUid !== undefined)
          complaints.report(path, `a pod with UID ${uid} is already defined in ${otherOfUid}: omit metadata.uid`);
        else {
          holders.set(name, path);
          uids.set(uid, path);
          now.set(path, holding);
          if (holding.text === fileText(files, path)) taken(path, holding);
        }
      }
      for (const path of seen) {
        if (files.some((file) => file.path === path)) continue;
        complaints.clear(path);
        readings.forget(path);
      }
      seen = files.map(({ path }) => path);
      held = now;
      first = false;
      return [...now.values()].map(({ pod }) => pod);
    },
  };
}

/** Cached result of parsing a text, with the text's digest: a pod, or the error. */
type CachedParse = { readonly digest: string } & ({ readonly held: ParsedManifest } | { readonly fault: unknown });

/** One read of all files. */
interface Round {
  readonly reader: ManifestReader;
  readonly adopt: Adopt;
  readonly signal: AbortSignal;
}

/** Parses texts. Unchanged texts, valid or not, are not parsed again at each read. */
function createParseCache(nodeName: string) {
  const readings = new Map<string, CachedParse>();
  const parsed = async (path: string, text: string, { reader, adopt, signal }: Round) => {
    try {
      const manifest = { text, origin: { nodeName, of: { file: path } }, lists: false };
      const [found] = await reader.read(manifest, signal);
      if (!found) throw unusable("it contains no pod");
      return { held: { text, unknown: found.unknown, pod: adopt(found) } };
    } catch (fault) {
      if (!hasCode(fault, "invalid_argument")) throw fault;
      return { fault };
    }
  };
  return {
    /** @throws CodedError invalid_argument: why the text is not a pod. */
    async read(
      { path, text }: { readonly path: string; readonly text: string },
      round: Round,
    ): Promise<ParsedManifest> {
      const digest = createHash("sha256").update(text).digest("hex");
      const before = readings.get(path);
      const reading = before?.digest === digest ? before : { digest, ...(await parsed(path, text, round)) };
      readings.set(path, reading);
      if ("fault" in reading) throw reading.fault;
      return reading.held;
    },
    forget: (path: string): void => void readings.delete(path),
  };
}

function fileText(files: readonly ManifestFile[], path: string): string | undefined {
  const file = files.find((one) => one.path === path);
  return file && "text" in file ? file.text : undefined;
}

interface ManifestWithPod {
  readonly path: string;
  /** Full name of the pod in the file. */
  readonly name: string;
  readonly holding: ParsedManifest;
}

function ordered(
  all: readonly ManifestWithPod[],
  held: ReadonlyMap<string, ParsedManifest>,
): readonly ManifestWithPod[] {
  const hadIt = ({ path, name }: ManifestWithPod) => {
    const before = held.get(path);
    return before !== undefined && podFullName(before.pod) === name;
  };
  return [...all.filter(hadIt), ...all.filter((one) => !hadIt(one))];
}
