// Carries BYTES over a link of its own to the machine that the ssh provider's SETTINGS name: `up` to a cat there, `down` from one. Prints
// the seconds that took.
import { readSshConfig } from "../../providers/ssh/config.ts";
import { sshHost } from "../../providers/ssh/host.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { silentLog } from "../../src/lib/log.ts";
import { secondsOfCat } from "./link-cat.ts";
import { argvOf } from "./argv.ts";

const [settings = "", direction = "", size] = process.argv.slice(2);
await using host = sshHost({ config: readSshConfig(JSON.parse(settings)), clock: systemClock(), log: silentLog() });
await host.run(argvOf(["true"]));
console.log(await secondsOfCat(host, direction, Number(size)));
