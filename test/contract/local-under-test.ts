import { once } from "node:events";
import { mkdtemp, realpath, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { localHost } from "../../providers/local/host.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { must, start } from "../harness/processes.ts";
import { awkwardThere } from "./awkward.ts";
import type { HostUnderTest } from "./host.ts";

/** This machine, for the contract. @param machine a process in whose mount namespace commands run. */
export async function localUnderTest(machine?: number): Promise<HostUnderTest> {
  const dir = await realpath(await mkdtemp(join(tmpdir(), "graftlet-host-")));
  const servers = new AsyncDisposableStack();
  return {
    host: localHost({ clock: systemClock(), ...(machine !== undefined && { machinePid: machine }) }),
    dir,
    makeFifo: async (path) => void (await must(["mkfifo", path])),
    async makeSocket(path) {
      const server = createServer().listen(path);
      servers.defer(() => new Promise((resolve) => server.close(() => resolve())));
      await new Promise((resolve) => server.once("listening", resolve));
    },
    ...awkwardThere(must, start),
    async mount(path) {
      await must(["mount", "-t", "tmpfs", "tmpfs", path]);
      return { [Symbol.asyncDispose]: async () => void (await must(["umount", path])) };
    },
    unmount: machine === undefined ? async (path) => void (await must(["umount", path])) : undefined,
    async [Symbol.asyncDispose]() {
      await servers.disposeAsync();
      await rm(dir, { recursive: true });
    },
  };
}

/** A process with mounts of its own, as a machine's are to a Pod. */
export async function startMachine(): Promise<AsyncDisposable & { readonly pid: number }> {
  const machine = start(["unshare", "--mount", "--propagation=private", "sh", "-c", "echo up; exec sleep 600"]);
  await once(machine.stdout ?? machine, "data");
  return {
    pid: machine.pid ?? 0,
    async [Symbol.asyncDispose]() {
      machine.kill("SIGKILL");
      await once(machine, "exit");
    },
  };
}

/** A machine whose commands run in its own mount namespace, as from a Pod. */
export async function machineFromPod(): Promise<HostUnderTest> {
  const machine = await startMachine();
  const made = await localUnderTest(machine.pid);
  return {
    ...made,
    async [Symbol.asyncDispose]() {
      await made[Symbol.asyncDispose]();
      await machine[Symbol.asyncDispose]();
    },
  };
}
