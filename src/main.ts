#!/usr/bin/env -S MALLOC_ARENA_MAX=2 node --max-semi-space-size=1 --no-parallel-scavenge --heap-growing-percent=100
import { isMainThread } from "node:worker_threads";
import { parseCommandLine } from "./config/command-line.ts";
import type { OptionsOf } from "./config/parse-result.ts";
import type { RunNodesOptions } from "./process/nodes.ts";
import type { OutsideReplica } from "./process/outside-replica.ts";
import { processIo } from "./config/process-io.ts";
import { systemClock } from "./lib/clock.ts";
import { CodedError, messageOf } from "./lib/errors.ts";
import { visibleText } from "./lib/visible-text.ts";
import { processTerminal } from "./commands/terminal.ts";

/** Work of Node's threads that cannot be cancelled: a normal exit waits for it, possibly for minutes. */
const onThreads = /^(GetAddrInfo|GetNameInfo|FSReq)/;

/** The entry point: parses flags, reads the configuration, and runs nodes until a signal arrives. The code of nodes is loaded only when
 *  they run. */
async function main(stop: AbortController): Promise<number> {
  const io = processIo();
  const command = parseCommandLine(process.argv.slice(2), io);
  if (command.kind === "help" || command.kind === "version") {
    process.stdout.write(`${command.text}\n`);
    return 0;
  }
  if (command.kind === "status") {
    const { runStatus } = await import("./commands/status.ts");
    return (await runStatus({ ...command, terminal: processTerminal(), signal: stop.signal })) ? 0 : 1;
  }
  const { createMachineAccess } = await import("../providers/index.ts");
  const { providers, listeners } = createMachineAccess();
  for (const name of ["SIGTERM", "SIGINT"] as const) process.once(name, () => stop.abort(new Stopped(name)));
  const { signal } = stop;
  if (command.kind === "remove") {
    const { runRemoval } = await import("./commands/remove.ts");
    return (await runRemoval({ ...command, providers, terminal: processTerminal(), signal })) ? 0 : 1;
  }
  if (command.kind === "leave") {
    const { runLeave } = await import("./commands/leave.ts");
    return (await runLeave({ ...command, providers, env: io.env, terminal: processTerminal(), signal })) ? 0 : 1;
  }
  if (command.kind === "enrol") {
    const { runEnrol } = await import("./commands/enrol.ts");
    await runEnrol({ ...command, listeners, env: io.env, terminal: processTerminal(), signal });
    return 0;
  }
  if (command.kind === "doctor") {
    const { runDoctor } = await import("./commands/doctor.ts");
    return (await runDoctor({ ...command, providers, env: io.env, terminal: processTerminal(), signal })) ? 0 : 1;
  }
  const { runNodes } = await import("./process/nodes.ts");
  const cleanMachine: RunNodesOptions["cleanMachine"] = async (
    node,
    { graceMs, expectedMachine, object, say: print },
    stop,
  ) => {
    const { runRemoval } = await import("./commands/remove.ts");
    const leaving = { longestGraceSeconds: Math.ceil(graceMs / 1000), expectedMachine, object };
    return runRemoval({ node, yes: true, providers, terminal: { print }, leaving, signal: stop });
  };
  const run = (options: OptionsOf<"run"> & { readonly outside?: OutsideReplica }, until: AbortSignal) =>
    runNodes({ ...options, providers, listeners, env: io.env, cleanMachine, signal: until });
  if (command.kind === "run") return (await run(command, signal)) ? 0 : 1;
  const { runOutsideReplica } = await import("./process/outside-replica.ts");
  return (await runOutsideReplica({ ...command, run, signal })) ? 0 : 1;
}

class Stopped extends CodedError {
  readonly by: NodeJS.Signals;
  constructor(by: NodeJS.Signals) {
    super("cancelled", `stopped by ${by}`);
    this.by = by;
  }
}

/** Time for threads to finish after everything else has ended, and polling interval, milliseconds. */
const [patienceMs, lookMs] = [1_000, 20];

/** Ends the process. If a signal has stopped it and hanging threads would block the exit, it is killed by that signal. */
async function end(code: number, stop: AbortSignal): Promise<void> {
  const why: unknown = stop.reason;
  if (why instanceof Stopped) await hanging(() => process.kill(process.pid, why.by));
  process.exit(code);
}

/** Waits for Node's threads, and calls `hang` if they do not finish in time. */
async function hanging(hang: () => void): Promise<void> {
  const clock = systemClock();
  const until = clock.monotonic() + patienceMs;
  while (process.getActiveResourcesInfo().some((name) => onThreads.test(name))) {
    if (clock.monotonic() >= until) hang();
    await clock.sleep(lookMs);
  }
}

if (isMainThread) {
  // A reader, such as a pager or a log collector, may exit first: writing then fails.
  for (const output of [process.stdout, process.stderr]) output.on("error", () => undefined);
  const stop = new AbortController();
  main(stop).then(
    (code) => end(code, stop.signal),
    (error: unknown) => {
      const text = error instanceof Error && !(error instanceof CodedError) ? error.stack : messageOf(error);
      process.stderr.write(`graftlet: ${visibleText(text ?? messageOf(error))}\n`);
      process.exit(1);
    },
  );
}
// A thread of the built program, which is one file, begins here too.
else await import("./sources/manifest-reader.ts");
