import { join } from "node:path";
import { cached, installDebian, unread } from "../machines/debian.ts";
import type { EdgeMachine } from "./edge-machine.ts";

const recipe = { suite: "bookworm", packages: ["ufw"], without: unread };

/** Installs Debian's ufw on a machine that shares this one's programs: a layer below /usr, which others do not see. */
export async function installUfw({ mustInside }: EdgeMachine, say: (line: string) => void): Promise<void> {
  const root = await cached({
    kind: "ufw",
    recipe,
    waiting: "making a Debian with ufw: once per machine, about a minute",
    say,
    make: (folder) => installDebian(recipe, folder),
  });
  const [program, settings] = [join(root, "usr"), join(root, "etc")];
  await mustInside([
    "sh",
    "-ec",
    `cp -r ${settings}/ufw /etc; cp ${settings}/default/ufw /etc/default
     mount -t overlay overlay -o lowerdir=/usr:${program} /usr`,
  ]);
}
