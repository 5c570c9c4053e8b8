import { join } from "node:path";
import { unheardStreams } from "./stream-rules.ts";

/** Holds src and providers to the rule that something listens to the errors of each stream; names each breach and ends with 1 if there is any. */
const root = join(import.meta.dirname, "..");
const isOwn = (name: string) => /^(src|providers)\//.test(name) && !/^src\/(gen|page\/browser)\//.test(name);
const found = unheardStreams(join(root, "tsconfig.json"), root, isOwn);
for (const { file, line, name, why } of found) process.stderr.write(`${file}:${line}: ${name} ${why}\n`);
process.stdout.write(`streams: ${found.length} without a listener\n`);
process.exitCode = found.length === 0 ? 0 : 1;
