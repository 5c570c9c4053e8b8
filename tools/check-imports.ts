import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { circlesOf, faultsOf } from "./import-rules.ts";

/** Holds src and providers to the import rules, and to no circles; names each breach and ends with 1 if there is any. */
const root = join(import.meta.dirname, "..");
const files = ["src", "providers"].flatMap((folder) =>
  readdirSync(join(root, folder), { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".ts"))
    .map((name) => `${folder}/${name}`),
);
const sources = new Map(files.map((file) => [file, readFileSync(join(root, file), "utf8")]));
const faults = [...sources].flatMap(([file, source]) => faultsOf(file, source));
faults.push(...circlesOf(sources).map((circle) => `a circle of imports: ${circle}`));
for (const fault of faults) process.stderr.write(`${fault}\n`);
process.stdout.write(`imports: ${files.length} files checked, ${faults.length} breaches\n`);
process.exitCode = faults.length === 0 ? 0 : 1;
