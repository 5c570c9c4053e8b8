// A node's claim on the machine that the ssh provider's SETTINGS name, in a process that a test stops and continues. It locks ROOT, then
// appends a byte to FILE there without pause for as long as that is permitted. Prints `claimed`, and the error's code when it is not any more.
import { readSshConfig } from "../../providers/ssh/config.ts";
import { sshHost } from "../../providers/ssh/host.ts";
import { createTargetLink } from "../../providers/ssh/provider.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { codeOf } from "../../src/lib/errors.ts";
import { silentLog } from "../../src/lib/log.ts";
import { claimTarget } from "../../src/process/claim.ts";
import { fencedTarget } from "../../src/seams/fenced.ts";
import { fakeRuntime } from "../fakes/runtime.ts";
import { argvOf } from "../harness/argv.ts";

const [settings = "", rootDir = "", file = ""] = process.argv.slice(2);
const [clock, log] = [systemClock(), silentLog()];
const { signal } = new AbortController();
await using host = sshHost({ config: readSshConfig(JSON.parse(settings)), clock, log });
const link = createTargetLink(host.link);
const target = { host, sharing: "exclusive" as const, link };
const pulse = { intervalMs: 1_000, timeoutSeconds: 4 };
await using claim = await claimTarget(
  { target, clock, log, pulse },
  { nodeName: "frozen", rootDir, kubelet: { podLogsDir: `${rootDir}/logs` } },
  signal,
);
const fenced = fencedTarget({ host, runtime: fakeRuntime({ clock }) }, claim, signal);
console.log("claimed");
try {
  for (;;) await fenced.host.run(argvOf(["sh", "-c", 'printf x >> "$1"', "sh", file]));
} catch (error) {
  console.log(codeOf(error));
}
