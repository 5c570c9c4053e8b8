import type { Pod } from "../objects.ts";
import type { FileChange } from "../seams/host.ts";
import { firstFiles, writeAtomically } from "./atomic-writer.ts";
import { giveDirectory, groupOf, readableBy } from "./group.ts";
import type { SetUpDeps } from "./kinds/kind.ts";
import { nestedMountPoints } from "./nested.ts";
import { type Payload, checkSize, payloadDigest } from "./payload.ts";

/** Destination of a payload: a volume's directory, which `prepare` creates. */
export interface Place {
  readonly pod: Pod;
  readonly volumeName: string;
  readonly path: string;
  /** Mode of that directory. */
  readonly mode: number;
  /** Changes that create the directory, or those that remain after everything else is done. */
  prepare(): Promise<readonly FileChange[]>;
}

const mountPoint = 0o755;

/** Writes a payload to its destination, readable for the pod's fsGroup. An unchanged payload costs nothing, not even a look.
 *  @throws resource_exhausted for a payload of more than 64 MiB; the host's failures. */
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
