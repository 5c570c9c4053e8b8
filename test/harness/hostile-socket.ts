import { fork } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** A hostile server behind a unix socket, in a process of its own. */
export interface HostileSocket extends AsyncDisposable {
  readonly path: string;
}

/** @param attack its name in hostile-http2.ts or hostile-engine.ts. */
export async function startHostileSocket(protocol: "grpc" | "docker", attack: string): Promise<HostileSocket> {
  const folder = mkdtempSync(join(tmpdir(), "graftlet-hostile-"));
  const path = join(folder, "hostile.sock");
  const entry = join(import.meta.dirname, "hostile-socket-entry.ts");
  const child = fork(entry, [protocol, attack, path], { stdio: ["ignore", "inherit", "inherit", "ipc"] });
  await once(child, "message");
  return {
    path,
    async [Symbol.asyncDispose]() {
      const over = once(child, "exit");
      child.kill("SIGKILL");
      await over;
      rmSync(folder, { recursive: true });
    },
  };
}
