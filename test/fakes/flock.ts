import type { Program } from "./host-programs.ts";

/** `flock` as `acquireLocks` calls it, one within the other: locks by path, of which a shared one has many holders. */
export function fakeFlock(): Program {
  const holders = new Map<string, { readonly shared: boolean }[]>();
  return async (args, { stdin, stdout, killed }) => {
    const wanted = requestsIn(args);
    for (const { path, shared, conflict } of wanted) {
      const others = holders.get(path) ?? [];
      if (others.some((other) => !shared || !other.shared)) return conflict;
    }
    for (const request of wanted) holders.set(request.path, [...(holders.get(request.path) ?? []), request]);
    stdout.write("held\n");
    await new Promise((resolve) => {
      stdin.once("end", resolve).resume();
      killed.addEventListener("abort", resolve, { once: true });
    });
    for (const request of wanted)
      holders.set(request.path, holders.get(request.path)?.filter((each) => each !== request) ?? []);
    return 0;
  };
}

function requestsIn(args: readonly string[]) {
  return args.flatMap((arg, index) => {
    const conflict = /^--conflict-exit-code=(\d+)$/.exec(arg)?.[1];
    if (conflict === undefined) return [];
    return [{ path: args[index + 1] ?? "", shared: args[index - 1] === "--shared", conflict: Number(conflict) }];
  });
}
