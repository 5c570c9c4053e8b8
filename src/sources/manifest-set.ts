import { createHash } from "node:crypto";
import { messageOf } from "../lib/errors.ts";
import type { Pod } from "../objects.ts";
import { fullName } from "../pod/reference.ts";
import type { Complaints } from "./complaints.ts";
import { expectKind, manifestObject } from "./manifest.ts";
import type { ManifestFile } from "./manifest-files.ts";
import { type Origin, type StaticPod, staticPod } from "./static-pod.ts";

/** Gives a pod the UID of what runs of it already, where another agent started that. */
export type Adopt = (found: StaticPod) => Pod;

export interface ManifestSetDeps {
  readonly nodeName: string;
  readonly adopt: Adopt;
  readonly complaints: Complaints;
}

/** Turns what files hold into pods, and remembers what they held. */
export interface ManifestSet {
  /** The pods of these files, all that there are. A file that has become unusable goes on standing for the pod that it held. */
  podsOf(files: readonly ManifestFile[]): readonly Pod[];
  /** The file held the same when it was read last. */
  isUnchanged(file: ManifestFile): boolean;
}

interface Held {
  readonly text: string;
  /** Fields that count for nothing. */
  readonly unknown: readonly string[];
  readonly pod: Pod;
}

export function createManifestSet({ nodeName, adopt, complaints }: ManifestSetDeps): ManifestSet {
  let held = new Map<string, Held>();
  const readings = createReadings(nodeName);
  let seen: readonly string[] = [];
  let first = true;

  const read = (path: string, text: string): Held => {
    const known = held.get(path);
    if (known?.text === text) return known;
    return readings.read(path, text, first ? adopt : ({ pod }) => pod);
  };

  /** What the file holds, or held before it became unusable. */
  const holdingOf = (file: ManifestFile): Held | undefined => {
    try {
      if ("problem" in file) throw new Error(file.problem);
      return read(file.path, file.text);
    } catch (error) {
      const before = held.get(file.path);
      const instead = before ? `; the pod ${fullName(before.pod)} that it held runs on` : "";
      complaints.tell(file.path, `${messageOf(error)}${instead}`);
      return before;
    }
  };

  const taken = (path: string, { unknown }: Held) => {
    if (unknown.length === 0) complaints.settle(path);
    else complaints.remark(path, `a pod has no ${unknown.join(", no ")}`);
  };

  return {
    isUnchanged: (file) => "text" in file && held.get(file.path)?.text === file.text,
    podsOf(files) {
      const now = new Map<string, Held>();
      const holders = new Map<string, string>();
      const uids = new Map<string, string>();
      // Of two files with one pod, that counts which had it before.
      for (const { path, name, holding } of ordered(files, holdingOf, held)) {
        const { uid } = holding.pod.metadata;
        const other = holders.get(name);
        const otherOfUid = uids.get(uid);
        if (other !== undefined) complaints.tell(path, `the pod ${name} is in ${other} already: give it another name`);
        else if (otherOfUid !== undefined)
          complaints.tell(path, `a pod with the UID ${uid} is in ${otherOfUid} already: leave metadata.uid out`);
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

/** What a text came to, by its digest: a pod, or why there is none. */
type Reading = { readonly digest: string } & ({ readonly held: Held } | { readonly fault: unknown });

/** Takes texts apart. One that has not changed is not taken apart again, and a bad one not every time that somebody looks. */
function createReadings(nodeName: string) {
  const readings = new Map<string, Reading>();
  const parsed = (path: string, text: string, adopt: Adopt) => {
    try {
      const object = manifestObject(text);
      expectKind(object, "Pod");
      const origin: Origin = { nodeName, of: { file: path } };
      const found = staticPod(object, origin);
      return { held: { text, unknown: found.unknown, pod: adopt(found) } };
    } catch (fault) {
      return { fault };
    }
  };
  return {
    /** @throws CodedError invalid_argument: why the text is no pod. */
    read(path: string, text: string, adopt: Adopt): Held {
      const digest = createHash("sha256").update(text).digest("hex");
      const before = readings.get(path);
      const reading = before?.digest === digest ? before : { digest, ...parsed(path, text, adopt) };
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

function ordered(
  files: readonly ManifestFile[],
  holdingOf: (file: ManifestFile) => Held | undefined,
  held: ReadonlyMap<string, Held>,
): readonly { readonly path: string; readonly name: string; readonly holding: Held }[] {
  const all = files.flatMap((file) => {
    const holding = holdingOf(file);
    return holding ? [{ path: file.path, name: fullName(holding.pod), holding }] : [];
  });
  const hadIt = ({ path, name }: { readonly path: string; readonly name: string }) => {
    const before = held.get(path);
    return before !== undefined && fullName(before.pod) === name;
  };
  return [...all.filter(hadIt), ...all.filter((one) => !hadIt(one))];
}
