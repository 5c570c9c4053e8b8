// Loaded into an agent before its own code: at SIGUSR2 it collects garbage and writes what is left alive, bytes, to the file
// that GRAFTLET_HEAP_REPORT names.
import { renameSync, writeFileSync } from "node:fs";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

const file = process.env.GRAFTLET_HEAP_REPORT;
if (!file) throw new Error("GRAFTLET_HEAP_REPORT names no file");
setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;
process.on("SIGUSR2", () => {
  collect();
  collect();
  const { heapUsed, external, rss } = process.memoryUsage();
  writeFileSync(`${file}.partial`, JSON.stringify({ live: heapUsed + external, rss }));
  renameSync(`${file}.partial`, file);
});
