// Makes what all test files of a run have in common, and writes down where it is: node test/harness/prepare.ts FOLDER
import { chmodSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { buildImages } from "../cluster/images/build.ts";
import { testKit } from "../cluster/tools/kits.ts";
import type { Prepared } from "./prepared.ts";
import { must } from "./processes.ts";
import { findToolFolders, toolsIn } from "./tools.ts";

const [folder] = process.argv.slice(2);
if (folder === undefined) throw new Error("write: node test/harness/prepare.ts FOLDER");
const say = (line: string): void => void process.stderr.write(`${line}\n`);
const project = join(import.meta.dirname, "..", "..");
// Agents of other users read it.
chmodSync(folder, 0o755);
const built = join(folder, "graftlet");
await must([process.execPath, join(project, "tools", "build.ts"), join(project, "src", "main.ts"), built]);
const tools = {
  "1.6": await findToolFolders(say, "1.6", testKit),
  "2.4": await findToolFolders(say, "2.4", testKit),
};
const images = await buildImages(toolsIn(tools["1.6"]), say);
const prepared: Prepared = { tools, images, graftlet: join(built, "graftlet.mjs") };
writeFileSync(join(folder, "prepared.json"), JSON.stringify(prepared));
