// Tears a cluster down when the process that owns it ends, however it ends: it holds the other end of
// this process's standard input. The owner says "released" once it has torn the cluster down itself.
import { layoutOf } from "./state.ts";
import { tearDown } from "./teardown.ts";

const layout = layoutOf(process.argv[2] ?? "");
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const)
  process.on(signal, () => {
    /* the owner's end decides, not the terminal's */
  });

let heard = "";
for await (const chunk of process.stdin) heard += String(chunk);
if (!heard.includes("released")) await tearDown(layout);
