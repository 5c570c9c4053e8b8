// Graftlet whose provider `ssh` opens machines in memory: started as its program is, for GraftedNodes.
import { createMachineAccess } from "../../providers/index.ts";
import { parseCommandLine } from "../../src/config/command-line.ts";
import { processIo } from "../../src/config/process-io.ts";
import { runNodes } from "../../src/process/nodes.ts";
import { fakeProvider } from "../fakes/provider.ts";

const io = processIo();
const asked = parseCommandLine(process.argv.slice(2), io);
if (asked.kind !== "run") throw new Error(`${process.argv.join(" ")} runs no nodes`);
const stop = new AbortController();
process.once("SIGTERM", () => stop.abort());
const access = createMachineAccess();
const ok = await runNodes({
  ...asked,
  ...access,
  providers: { ...access.providers, ssh: fakeProvider },
  env: io.env,
  // A machine in memory is gone with its node.
  cleanMachine: async () => true,
  signal: stop.signal,
});
process.exit(ok ? 0 : 1);
