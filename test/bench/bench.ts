// make bench: graftlet beside the real kubelet, or beside what its runtime can do at best. See docs/performance.md.
import { readFileSync, writeFileSync } from "node:fs";
import { loadavg } from "node:os";
import { join } from "node:path";
import { findTools } from "../harness/tools.ts";
import { withPart } from "./document.ts";
import { createLedger } from "./ledger.ts";
import { machineLine } from "./machine.ts";
import { readOptions } from "./options.ts";
import { reportOf, textOf } from "./report.ts";
import { runs } from "./runs.ts";
import { shortNumber } from "./statistics.ts";

const page = join(import.meta.dirname, "..", "..", "docs", "performance.md");
const say = (line: string): void => console.error(line);

try {
  const options = readOptions(process.env);
  const { run, figures, who } = runs[options.kind];
  const ledger = createLedger();
  const load = shortNumber(loadavg()[0] ?? 0);
  const began = performance.now();
  await run({ ledger, say }, options);
  const text = textOf(reportOf(ledger, figures(ledger), who));
  const took = `${Math.round((performance.now() - began) / 1000)} s`;
  const machine = `${await machineLine(await findTools(say))}, with a load of ${load} from other programs at the start of the run`;
  console.log(`\n${text}\n${took} on ${machine}`);
  if (options.part) {
    const date = new Date().toISOString().slice(0, 10);
    const content = `Measured on ${date} in ${took} on ${machine}.\n\n${text}`;
    writeFileSync(page, withPart(readFileSync(page, "utf8"), options.part, content));
    say(`written into ${page}`);
  }
} catch (error) {
  console.error(error instanceof Error ? error.message : String(error));
  process.exitCode = 1;
}
