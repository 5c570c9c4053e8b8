// Graftlet with one more provider, `fake`: started as its program is, for nodes whose machines are in memory. Those of GraftedNodes, whose
// provider is always `ssh`, are in memory if FAKE_SSH is set.
import { fakeProvider } from "../fakes/provider.ts";
import { createMachineAccess } from "../../providers/index.ts";
import { parseCommandLine } from "../../src/config/command-line.ts";
import { processIo } from "../../src/config/process-io.ts";
import { runNodes } from "../../src/process/nodes.ts";

const io = processIo();
const asked = parseCommandLine(process.argv.slice(2), io);
if (asked.kind !== "run") throw new Error(`${process.argv.join(" ")} runs no nodes`);
const stop = new AbortController();
process.once("SIGTERM", () => stop.abort());
const access = createMachineAccess();
const ok = await runNodes({
  ...asked,
  ...access,
  providers: { ...access.providers, fake: fakeProvider, ...(io.env["FAKE_SSH"] && { ssh: fakeProvider }) },
  env: io.env,
  // A machine in memory is gone with its node.
  cleanMachine: async () => true,
  signal: stop.signal,
});
process.exit(ok ? 0 : 1);
