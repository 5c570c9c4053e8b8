#!/usr/bin/env -S MALLOC_ARENA_MAX=2 node --max-semi-space-size=1 --no-parallel-scavenge --heap-growing-percent=100
import { isMainThread } from "node:worker_threads";
import { parseCommandLine } from "./config/command-line.ts";
import { processIo } from "./config/process-io.ts";
import { CodedError, messageOf } from "./lib/errors.ts";
import { processTerminal } from "./terminal.ts";

/** The process edge: flags ▷ configuration ▷ nodes ▷ run until a signal. What the nodes need is loaded only when they run. */
async function main(): Promise<number> {
  const io = processIo();
  const asked = parseCommandLine(process.argv.slice(2), io);
  if (asked.kind === "help" || asked.kind === "version") {
    process.stdout.write(`${asked.text}\n`);
    return 0;
  }
  const { providers } = await import("../providers/index.ts");
  const stop = new AbortController();
  for (const name of ["SIGTERM", "SIGINT"] as const)
    process.once(name, () => stop.abort(new CodedError("cancelled", `stopped by ${name}`)));
  const { signal } = stop;
  if (asked.kind === "remove") {
    const { runRemoval } = await import("./removal.ts");
    return (await runRemoval({ ...asked, providers, terminal: processTerminal(), signal })) ? 0 : 1;
  }
  if (asked.kind === "leave") {
    const { runLeaving } = await import("./leaving.ts");
    return (await runLeaving({ ...asked, providers, env: io.env, terminal: processTerminal(), signal })) ? 0 : 1;
  }
  const { runNodes } = await import("./nodes.ts");
  return (await runNodes({ ...asked, providers, env: io.env, signal })) ? 0 : 1;
}

if (isMainThread)
  main().then(
    (code) => process.exit(code),
    (error: unknown) => {
      process.stderr.write(
        `graftlet: ${error instanceof CodedError ? error.message : error instanceof Error ? error.stack : messageOf(error)}\n`,
      );
      process.exit(1);
    },
  );
// A thread of the built program, which is one file, begins here too.
else await import("./sources/manifest-reader.ts");
