import type { Pod } from "../objects.ts";
import type { FileChange } from "../seams/host.ts";
import { firstFiles, writeAtomically } from "./atomic-writer.ts";
import { giveDirectory, groupOf, readableBy } from "./group.ts";
import type { SetUpDeps } from "./kinds/kind.ts";
import { nestedMountPoints } from "./nested.ts";
import { type Payload, checkSize, payloadDigest } from "./payload.ts";

/** Where to write the files of a volume: a directory, which `prepare` creates. */
export interface Place {
  readonly pod: Pod;
  readonly volumeName: string;
  readonly path: string;
  /** Mode of that directory. */
  readonly mode: number;
  /** Returns the changes that create the directory, after doing what cannot be expressed as a change. */
  prepare(): Promise<readonly FileChange[]>;
}

const mountPoint = 0o755;

/** Writes the files of a volume, readable for the pod's fsGroup. If nothing changed, the target is not accessed.
 *  @throws resource_exhausted for more than 64 MiB; the host's failures. */
export async function place(
  deps: SetUpDeps,
  { pod, volumeName, path, mode, prepare }: Place,
  given: Payload,
  signal: AbortSignal,
): Promise<void> {
  checkSize(given);
  const group = groupOf(pod);
  const payload = readableBy(group, given);
  const nested = nestedMountPoints(pod, volumeName);
  const digest = [payloadDigest(payload), ...nested].join("\n");
  if (deps.written.get(path) === digest) return;
  const directories: readonly FileChange[] = [
    ...(await prepare()),
    ...giveDirectory(group, { path, mode }),
    ...nested.flatMap((name): readonly FileChange[] => {
      const directory = { path: `${path}/${name}`, mode: mountPoint };
      return [{ do: "mkdir", ...directory, parents: true }, ...giveDirectory(group, directory)];
    }),
  ];
  if (deps.fresh) await deps.host.fs.apply([...directories, ...firstFiles(deps.clock, path, payload, group)], signal);
  else {
    await deps.host.fs.apply(directories, signal);
    await writeAtomically({ ...deps, group }, path, payload, signal);
  }
  deps.written.set(path, digest);
}
