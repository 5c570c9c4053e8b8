import { writeAtomically } from "./atomic-writer.ts";
import type { SetUpDeps } from "./kinds/kind.ts";
import { type Payload, payloadDigest } from "./payload.ts";

/** Puts a payload in its directory, which `prepare` makes. Does nothing at all, not even look, when the directory holds it. */
export async function place(deps: SetUpDeps, path: string, payload: Payload, prepare: () => Promise<void>, signal: AbortSignal): Promise<void> {
  const digest = payloadDigest(payload);
  if (deps.written.get(path) === digest) return;
  await prepare();
  await writeAtomically(deps, path, payload, signal);
  deps.written.set(path, digest);
}
