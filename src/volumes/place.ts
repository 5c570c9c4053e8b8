import type { Pod } from "../objects.ts";
import { writeAtomically } from "./atomic-writer.ts";
import type { SetUpDeps } from "./kinds/kind.ts";
import { nestedMountPoints } from "./nested.ts";
import { type Payload, payloadDigest } from "./payload.ts";

/** Where a payload goes: a volume's directory, which `prepare` makes. */
export interface Place {
  readonly pod: Pod;
  readonly volumeName: string;
  readonly path: string;
  prepare(): Promise<void>;
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
  await prepare();
  await deps.host.fs.apply(
    nested.map((name) => ({ do: "mkdir", path: `${path}/${name}`, mode: 0o755, parents: true })),
    signal,
  );
  await writeAtomically(deps, path, payload, signal);
  deps.written.set(path, digest);
}
