import { type Duplex, duplexPair } from "node:stream";
import type { Clock } from "../../src/lib/clock.ts";
import { CodedError, throwIfAborted } from "../../src/lib/errors.ts";
import { onAbort } from "../../src/lib/runnables.ts";
import type { Address, Host, HostFs } from "../../src/seams/host.ts";
import { type FakeFiles, createFakeFiles } from "./host-fs.ts";
import { type Program, createRunner, machinePrograms } from "./host-programs.ts";

/** How tests steer the fake and what they see of it. */
export interface FakeControls {
  readonly files: FakeFiles;
  /** Every command so far, as its program reads it: without the `--` that ends the options. */
  readonly commands: readonly (readonly string[])[];
  /** What a program does; undefined takes it away. */
  program(name: string, does: Program | undefined): void;
}

export type FakeHost = Required<Pick<Host, "listen" | "watch">> & Host & FakeControls;

export interface FakeHostOptions {
  readonly clock: Clock;
  /** False: nothing is kept of what was run and changed, for a machine that runs for long. Default true. */
  readonly isRecorded?: boolean;
}

/** A machine in memory: files, scripted programs, sockets that reach each other. */
export function fakeHost({ clock, isRecorded = true }: FakeHostOptions): FakeHost {
  const watchers = new Set<(path: string) => void>();
  const programs = new Map<string, Program>();
  const runner = createRunner(clock, programs, isRecorded);
  const changed = (path: string) => {
    for (const watcher of watchers) watcher(path);
  };
  const files = createFakeFiles(clock, { changed, run: runner.run, isRecorded });
  files.put("/proc/sys/kernel/random/boot_id", { data: "00000000-fake\n" });
  files.put("/proc/sys/kernel/osrelease", { data: "6.1.0-fake\n" });
  files.put("/proc/self/status", { data: "Name:\tfake\nCapEff:\t000001ffffffffff\n" });
  for (const [name, does] of machinePrograms(clock, files)) programs.set(name, does);
  return {
    files,
    fs: files.fs,
    ...runner,
    ...createSockets(files.fs),
    program: (name, does) => void (does ? programs.set(name, does) : programs.delete(name)),
    clock: { offsetMs: async () => 0, bootId: async () => "00000000-fake" },
    async *watch(path, signal) {
      await files.fs.stat(path);
      const seen: string[] = [];
      let wake = Promise.withResolvers<void>();
      const watcher = (changed: string) => {
        if (changed === path || changed.startsWith(`${path}/`)) seen.push(changed);
        wake.resolve();
      };
      watchers.add(watcher);
      const aborted = onAbort(signal);
      try {
        while (!signal.aborted) {
          yield* seen.splice(0);
          await Promise.race([wake.promise, aborted]);
          wake = Promise.withResolvers<void>();
        }
      } finally {
        watchers.delete(watcher);
      }
    },
    async [Symbol.asyncDispose]() {},
  };
}

/** Host's dial and listen within one memory. A link may lead to a socket. */
function createSockets(fs: Pick<HostFs, "readlink">): Required<Pick<Host, "dial" | "listen">> {
  const listeners = new Map<string, (connection: Duplex) => void>();
  let port = 40_000;
  return {
    async dial(to, signal) {
      throwIfAborted(signal);
      const leadsTo = "unix" in to ? await fs.readlink(to.unix).catch(() => undefined) : undefined;
      const accept = listeners.get(leadsTo ?? keyOf(to));
      if (!accept) {
        const cause = Object.assign(new Error("connection refused"), { code: "ECONNREFUSED" });
        throw new CodedError("unavailable", `${keyOf(to)}: connection refused`, { cause });
      }
      const [near, far] = duplexPair();
      far.once("close", () => near.destroy());
      near.once("close", () => far.destroy());
      accept(far);
      return near;
    },
    async listen(at, onConnection, signal) {
      throwIfAborted(signal);
      const address = "unix" in at || at.port !== 0 ? at : { ...at, port: port++ };
      const key = keyOf(address);
      if (listeners.has(key)) throw new CodedError("already_exists", `${key}: address already in use`);
      const open = new Set<Duplex>();
      listeners.set(key, (connection) => {
        open.add(connection);
        onConnection(connection);
      });
      const close = async () => {
        listeners.delete(key);
        for (const connection of open) connection.destroy();
      };
      signal?.addEventListener("abort", () => void close(), { once: true });
      return { address, [Symbol.asyncDispose]: close };
    },
  };
}

function keyOf(address: Address): string {
  return "unix" in address ? address.unix : `${address.host}:${address.port}`;
}
