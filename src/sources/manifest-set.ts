import { createHash } from "node:crypto";
import type { Clock } from "../lib/clock.ts";
import { hasCode, messageOf } from "../lib/errors.ts";
import type { Pod } from "../objects.ts";
import { fullName } from "../pod/reference.ts";
import type { Complaints } from "./complaints.ts";
import { unusable } from "./manifest.ts";
import type { ManifestFile } from "./manifest-files.ts";
import { type ManifestReader, openManifestReader } from "./manifest-reader.ts";
import type { StaticPod } from "./static-pod.ts";

/** Gives a pod the UID under which another agent already runs it. */
export type Adopt = (found: StaticPod) => Pod;

export interface ManifestSetDeps {
  readonly nodeName: string;
  readonly adopt: Adopt;
  readonly complaints: Complaints;
  readonly clock: Clock;
}

/** Turns the contents of files into pods, and remembers previous contents. */
export interface ManifestSet {
  /** The pods of these files, which are the complete set. A file that becomes invalid keeps the pod that it contained. */
  podsOf(files: readonly ManifestFile[], signal: AbortSignal): Promise<readonly Pod[]>;
  /** True if the file's contents are unchanged since the last read. */
  isUnchanged(file: ManifestFile): boolean;
}

interface Held {
  readonly text: string;
  /** Ignored fields. */
  readonly unknown: readonly string[];
  readonly pod: Pod;
}

/** Maximum number of fields in one warning. */
const mostNamed = 10;

export function createManifestSet({ nodeName, adopt, complaints, clock }: ManifestSetDeps): ManifestSet {
  let held = new Map<string, Held>();
  const readings = createReadings(nodeName);
  let seen: readonly string[] = [];
  let first = true;

  /** Contents of the file, or its last valid contents. */
  const holdingOf = async (file: ManifestFile, round: Round): Promise<Held | undefined> => {
    const before = held.get(file.path);
    try {
      if ("problem" in file) throw new Error(file.problem);
      return before?.text === file.text ? before : await readings.read(file, round);
    } catch (error) {
      round.signal.throwIfAborted();
      const instead = before ? `; pod ${fullName(before.pod)}, which it contained before, keeps running` : "";
      complaints.tell(file.path, `${messageOf(error)}${instead}`);
      return before;
    }
  };

  const taken = (path: string, { unknown }: Held) => {
    if (unknown.length === 0) complaints.settle(path);
    else {
      const more = unknown.length > mostNamed ? ` and ${unknown.length - mostNamed} more` : "";
      complaints.remark(path, `unknown fields: ${unknown.slice(0, mostNamed).join(", ")}${more}`);
    }
  };

  return {
    isUnchanged: (file) => "text" in file && held.get(file.path)?.text === file.text,
    async podsOf(files, signal) {
      await using reader = openManifestReader(clock);
      const round: Round = { reader, signal, adopt: first ? adopt : ({ pod }) => pod };
      const holdings: Holding[] = [];
      for (const file of files) {
        const holding = await holdingOf(file, round);
        if (holding) holdings.push({ path: file.path, name: fullName(holding.pod), holding });
      }
      const now = new Map<string, Held>();
      const holders = new Map<string, string>();
      const uids = new Map<string, string>();
      // If two files contain one pod, the file that had it before takes precedence.
      for (const { path, name, holding } of ordered(holdings, held)) {
        const { uid } = holding.pod.metadata;
        const other = holders.get(name);
        const otherOfUid = uids.get(uid);
        if (other !== undefined)
          complaints.tell(path, `pod ${name} is already defined in ${other}: give it another name`);
        else if (otherOfUid !== undefined)
          complaints.tell(path, `a pod with UID ${uid} is already defined in ${otherOfUid}: omit metadata.uid`);
        else {
          holders.set(name, path);
          uids.set(uid, path);
          now.set(path, holding);
          if (holding.text === textOf(files, path)) taken(path, holding);
        }
      }
      for (const path of seen) {
        if (files.some((file) => file.path === path)) continue;
        complaints.settle(path);
        readings.forget(path);
      }
      seen = files.map(({ path }) => path);
      held = now;
      first = false;
      return [...now.values()].map(({ pod }) => pod);
    },
  };
}

/** Results by digest of the text: a pod, or the reason of a refusal. */
type Reading = { readonly digest: string } & ({ readonly held: Held } | { readonly fault: unknown });

/** One read of all files. */
interface Round {
  readonly reader: ManifestReader;
  readonly adopt: Adopt;
  readonly signal: AbortSignal;
}

/** Parses texts. Unchanged texts, valid or not, are not parsed again at each read. */
function createReadings(nodeName: string) {
  const readings = new Map<string, Reading>();
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
    async read({ path, text }: { readonly path: string; readonly text: string }, round: Round): Promise<Held> {
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

function textOf(files: readonly ManifestFile[], path: string): string | undefined {
  const file = files.find((one) => one.path === path);
  return file && "text" in file ? file.text : undefined;
}

interface Holding {
  readonly path: string;
  /** Name of its pod. */
  readonly name: string;
  readonly holding: Held;
}

function ordered(all: readonly Holding[], held: ReadonlyMap<string, Held>): readonly Holding[] {
  const hadIt = ({ path, name }: Holding) => {
    const before = held.get(path);
    return before !== undefined && fullName(before.pod) === name;
  };
  return [...all.filter(hadIt), ...all.filter((one) => !hadIt(one))];
}
