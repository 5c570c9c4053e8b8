// Carries BYTES over a link of its own to the machine that the ssh provider's SETTINGS name: `up` to a cat there, `down` from one. Prints
// the seconds that took.
import { once } from "node:events";
import { finished } from "node:stream/promises";
import { readSshConfig } from "../../providers/ssh/config.ts";
import { sshHost } from "../../providers/ssh/host.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { silentLog } from "../../src/lib/log.ts";

const [settings = "", direction, size] = process.argv.slice(2);
const chunk = Buffer.alloc(256 * 1024);
await using host = sshHost({ config: readSshConfig(JSON.parse(settings)), clock: systemClock(), log: silentLog() });
await host.run(["true"]);
const began = performance.now();
const command = direction === "up" ? "cat >/dev/null" : `head -c ${size} /dev/zero | cat`;
await using cat = await host.spawn(["sh", "-c", command]);
cat.stdout.resume();
if (direction === "up")
  for (let sent = 0; sent < Number(size); sent += chunk.length)
    if (!cat.stdin.write(chunk)) await once(cat.stdin, "drain");
cat.stdin.end();
await Promise.all([finished(cat.stdout), cat.exited]);
console.log((performance.now() - began) / 1_000);
