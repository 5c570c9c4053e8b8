import type { Argv } from "../../src/seams/command.ts";
import { lockCommand, type LockRequest } from "../../src/host/lock.ts";
import type { Program } from "./host-programs.ts";

/** The shell, as far as it is asked by `acquireLocks`: locks by path, of which a shared one has many holders. */
export function lockingShell(): Program {
  const holders = new Map<string, LockRequest[]>();
  return async ([, script = "", , ...paths], { stdin, stdout, killed }) => {
    const modes = [...script.matchAll(/^flock -n -(s|x) /gm)].map(([, mode]) => mode);
    // A script that takes no locks, such as the one that looks for iptables chains, finds nothing.
    if (modes.length === 0) return 0;
    const wanted = paths.map((path, index) => ({ path, shared: modes[index] === "s" }));
    for (const [index, { path, shared }] of wanted.entries()) {
      const others = holders.get(path) ?? [];
      if (others.some((other) => !shared || !other.shared)) return 101 + index;
    }
    for (const request of wanted) holders.set(request.path, [...(holders.get(request.path) ?? []), request]);
    stdout.write("held\n");
    await new Promise((resolve) => {
      stdin.once("end", resolve).on("data", (beat: Buffer) => stdout.write(beat));
      killed.addEventListener("abort", resolve, { once: true });
    });
    for (const request of wanted)
      holders.set(request.path, holders.get(request.path)?.filter((each) => each !== request) ?? []);
    return 0;
  };
}

/** The command with which somebody else takes a lock. */
export function rivalCommand(path: string, shared = false): Argv {
  return lockCommand([{ path, shared }]);
}
