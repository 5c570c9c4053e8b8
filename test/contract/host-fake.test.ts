import { systemClock } from "../../src/lib/clock.ts";
import { fakeHost } from "../fakes/host.ts";
import { hostContract } from "./host.ts";

hostContract("the fake", async () => {
  const host = fakeHost({ clock: systemClock() });
  const { files } = host;
  await host.fs.apply([{ do: "mkdir", path: "/work" }]);
  return {
    host,
    dir: "/work",
    makeFifo: async (path) => files.put(path, { kind: "fifo" }),
    makeSocket: async (path) => files.put(path, { kind: "socket" }),
    async mount(path) {
      files.mount(path, "tmpfs");
      return { [Symbol.asyncDispose]: async () => files.unmount(path) };
    },
    [Symbol.asyncDispose]: () => host[Symbol.asyncDispose](),
  };
});
