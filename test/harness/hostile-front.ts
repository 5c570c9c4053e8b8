import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Cluster } from "./cluster.ts";

/** A runtime behind a socket that turns hostile and honest again as it is told. */
export interface HostileFront extends AsyncDisposable {
  /** Cuts the connections, and attacks each new one. @param name of an attack in hostile-http2.ts or hostile-engine.ts. */
  attack(name: string): Promise<void>;
  /** Cuts the connections, and serves the runtime again. */
  rest(): Promise<void>;
}

/** @param socket where it listens, on the cluster's machine. @param runtime the socket of the runtime behind it.
 *  @throws when it ends at once. */
export async function startHostileFront(
  cluster: Cluster,
  protocol: "grpc" | "docker",
  { socket, runtime }: { readonly socket: string; readonly runtime: string },
): Promise<HostileFront> {
  const entry = join(import.meta.dirname, "hostile-front-entry.ts");
  const child = cluster.spawnInside([process.execPath, entry, protocol, socket, runtime]);
  child.stderr?.pipe(process.stderr);
  if (!child.stdout) throw new Error("the hostile socket has no standard output");
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const answered = async (what: string): Promise<void> => {
    if ((await lines.next()).done) throw new Error(`the hostile socket ended when it ${what}`);
  };
  const tell = async (line: string): Promise<void> => {
    child.stdin?.write(`${line}\n`);
    await answered(`was told "${line}"`);
  };
  await answered("was started");
  return {
    attack: (name) => tell(`attack ${name}`),
    rest: () => tell("rest"),
    async [Symbol.asyncDispose]() {
      const over = once(child, "exit");
      child.stdin?.end();
      await over;
    },
  };
}
