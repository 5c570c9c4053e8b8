import { once } from "node:events";
import { mkdtempDisposable, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openWayIn } from "../contract/way-in.ts";
import { addresses } from "../harness/namespaces.ts";
import { type Finished, type RunOptions, must, run, start } from "../harness/processes.ts";
import { type GuestSizes, guestSizes } from "../harness/state.ts";
import { Hopeless, waitFor } from "../harness/wait.ts";
import { guestImage } from "./guest-image.ts";
import { insideOf, isolatedArgv, layerDisks } from "./guest-state.ts";

/** A machine with a kernel of its own, and no cluster around it. It ends when disposed of, and with this process. */
export interface LoneGuest extends AsyncDisposable {
  /** How root logs in. */
  readonly login: {
    readonly host: string;
    readonly port: number;
    readonly user: string;
    readonly privateKeyFile: string;
    readonly knownHostsFile: string;
  };
  /** Runs a command in it as root, without graftlet's own connection. */
  inside(argv: readonly string[], options?: RunOptions): Promise<Finished>;
  /** The same for one that must succeed. @returns its standard output. */
  mustInside(argv: readonly string[], options?: RunOptions): Promise<string>;
}

/** Boots a guest by emulation, which takes two minutes. */
export async function bootLoneGuest(more: Partial<GuestSizes>, say: (line: string) => void): Promise<LoneGuest> {
  const sizes = { ...guestSizes, memoryMiB: 1024, swapMiB: 0, ...more };
  const image = await guestImage(say, sizes);
  await using stack = new AsyncDisposableStack();
  const { path: folder } = stack.use(await mkdtempDisposable(join(tmpdir(), "graftlet-guest-")));
  await layerDisks(folder, sizes, () => image.disk, "raw");
  const argv = isolatedArgv({ image, sizes, folder, name: "guest" });
  const child = start(argv, { stdio: ["ignore", "ignore", "inherit"], cwd: "/" });
  stack.defer(async () => {
    if (child.exitCode === null && child.kill("SIGKILL")) await once(child, "exit");
  });
  await once(child, "spawn");
  const into = insideOf(child, image);
  const inside = (command: readonly string[], options?: RunOptions) => run(into(command), options);
  const isUp = async () => {
    if (child.exitCode !== null) throw new Hopeless(`the emulator ended with ${child.exitCode}`);
    return (await inside(["true"])).code === 0;
  };
  await waitFor("the guest to boot", isUp, { timeoutMs: 600_000, everyMs: 1_000 });
  const target = `TCP:${addresses.guest}:22,nodelay`;
  const way = await openWayIn(["nsenter", `--target=${child.pid}`, "--net", "socat", "-", target]);
  stack.defer(() => way.close());
  const knownHostsFile = join(folder, "known_hosts");
  const key = (await must(into(["cat", "/etc/ssh/way-in.key.pub"]))).split(" ").slice(0, 2).join(" ");
  await writeFile(knownHostsFile, `[127.0.0.1]:${way.port} ${key}\n`);
  const whole = stack.move();
  return {
    login: { host: "127.0.0.1", port: way.port, user: "root", privateKeyFile: image.key, knownHostsFile },
    inside,
    mustInside: (command, options) => must(into(command), options),
    [Symbol.asyncDispose]: () => whole.disposeAsync(),
  };
}
