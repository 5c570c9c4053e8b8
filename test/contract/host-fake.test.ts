import { systemClock } from "../../src/lib/clock.ts";
import { CodedError } from "../../src/lib/errors.ts";
import { fakeHost } from "../fakes/host.ts";
import { hostContract } from "./host.ts";

hostContract("the fake", async () => {
  const host = fakeHost({ clock: systemClock() });
  const { files } = host;
  await host.fs.apply([{ kind: "mkdir", path: "/work" }]);
  host.program("df", (_args, { stdout }) => {
    stdout.write(`/dev/sda 0 ${files.space.usedBytes / 1024} 0 0% /\n`);
    return 0;
  });
  return {
    host,
    dir: "/work",
    makeFifo: async (path) => files.put(path, { kind: "fifo" }),
    makeSocket: async (path) => files.put(path, { kind: "socket" }),
    async makeAwkward(path) {
      for (const name of ["\xff", "-rf", "new\nline", `${"d/".repeat(60)}f`]) files.put(`${path}/${name}`);
    },
    // Changes are made in one go here.
    swap: async () => ({ [Symbol.asyncDispose]: async () => undefined }),
    async freeze(path) {
      files.onChange((change) => {
        if (change.kind === "remove" && path.startsWith(`${change.path}/`))
          throw new CodedError("permission_denied", `${path}: operation not permitted`);
      });
      return { [Symbol.asyncDispose]: async () => files.onChange(undefined) };
    },
    async mount(path) {
      files.mount(path, "tmpfs");
      return { [Symbol.asyncDispose]: async () => files.unmount(path) };
    },
    unmount: async (path) => files.unmount(path),
    [Symbol.asyncDispose]: () => host[Symbol.asyncDispose](),
  };
});
