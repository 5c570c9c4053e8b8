import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { faultsOf } from "./import-rules.ts";

/** Holds src and providers to the import rules; names each breach and ends with 1 if there is any. */
const root = join(import.meta.dirname, "..");
const files = ["src", "providers"].flatMap((folder) =>
  readdirSync(join(root, folder), { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".ts"))
    .map((name) => `${folder}/${name}`),
);
const faults = files.flatMap((file) => faultsOf(file, readFileSync(join(root, file), "utf8")));
for (const fault of faults) process.stderr.write(`${fault}\n`);
process.stdout.write(`imports: ${files.length} files checked, ${faults.length} breaches\n`);
process.exitCode = faults.length === 0 ? 0 : 1;
