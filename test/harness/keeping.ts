import { Socket } from "node:net";
import { closeSync, openSync } from "node:fs";
import { join } from "node:path";
import { start } from "./processes.ts";
import { clustersFolder, type Layout } from "./state.ts";

/** Sees to a cluster's end when its owner ends without seeing to it. */
export interface Keeper {
  /** Nothing is left to see to. */
  release(): void;
}

/** Starts the process that tears the cluster down when this one ends, by whatever cause. */
export async function startKeeper(layout: Layout): Promise<Keeper> {
  const log = openSync(join(layout.dir, "keeper.log"), "a");
  const child = start([process.execPath, join(import.meta.dirname, "keeper.ts"), layout.name], {
    stdio: ["pipe", log, log],
    detached: true,
    cwd: clustersFolder,
  });
  closeSync(log);
  await new Promise<void>((resolve, reject) => {
    child.once("spawn", resolve);
    child.once("error", reject);
  });
  child.unref();
  const input = child.stdin;
  if (!input) throw new Error("the keeper has no standard input");
  input.on("error", () => {
    /* it was killed: the next start under this name removes what is left */
  });
  if (input instanceof Socket) input.unref();
  return { release: () => void input.end("released\n") };
}
