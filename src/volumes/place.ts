import type { Pod } from "../objects.ts";
import type { FileChange } from "../seams/host.ts";
import { firstFiles, writeAtomically } from "./atomic-writer.ts";
import type { SetUpDeps } from "./kinds/kind.ts";
import { nestedMountPoints } from "./nested.ts";
import { type Payload, payloadDigest } from "./payload.ts";

/** Where a payload goes: a volume's directory, which `prepare` makes. */
export interface Place {
  readonly pod: Pod;
  readonly volumeName: string;
  readonly path: string;
  /** Changes of files that make the directory, or those that are left once all else is done. */
  prepare(): Promise<readonly FileChange[]>;
}

/** Puts a payload in its place. Does nothing at all, not even look, when the directory holds it. */
export async function place(
  deps: SetUpDeps,
  { pod, volumeName, path, prepare }: Place,
  payload: Payload,
  signal: AbortSignal,
): Promise<void> {
  const nested = nestedMountPoints(pod, volumeName);
  const digest = [payloadDigest(payload), ...nested].join("\n");
  if (deps.written.get(path) === digest) return;
  const directories: readonly FileChange[] = [
    ...(await prepare()),
    ...nested.map((name): FileChange => ({ do: "mkdir", path: `${path}/${name}`, mode: 0o755, parents: true })),
  ];
  if (deps.fresh) await deps.host.fs.apply([...directories, ...firstFiles(deps.clock, path, payload)], signal);
  else {
    await deps.host.fs.apply(directories, signal);
    await writeAtomically(deps, path, payload, signal);
  }
  deps.written.set(path, digest);
}
