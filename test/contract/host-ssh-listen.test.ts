import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { argvOf } from "../harness/argv.ts";
import { sshBench } from "./ssh-bench.ts";
import { within } from "./waiting.ts";

describe("ports that graftlet listens on over SSH", () => {
  const { hostOf } = sshBench("listen");

  test("accepts a connection that arrives as the target begins to listen", async () => {
    await using host = hostOf();
    const port = 20_022;
    // Connects as soon as that is possible, and says so if it gets no answer.
    const knocking = `
import socket, sys
while True:
    try:
        door = socket.create_connection(("127.0.0.1", ${port}))
        door.settimeout(20)
        try:
            door.recv(9)
        except TimeoutError:
            print("hangs", flush=True)
            sys.exit()
    except OSError:
        pass`;
    await using knocks = await host.spawn(argvOf(["python3", "-c", knocking]));
    let said = "";
    knocks.stdout.on("data", (chunk: Buffer) => (said += chunk));
    // A busy process reads in one go what the target sends one after the other.
    const busy = setInterval(() => {
      for (const until = performance.now() + 20; performance.now() < until; );
    }, 1);
    for (let round = 0; round < 20; round++) {
      const listener = await within(
        Promise.resolve(host.listen?.({ host: "127.0.0.1", port }, (far) => far.end("back"))),
      );
      await listener?.[Symbol.asyncDispose]();
    }
    clearInterval(busy);
    const quiet = new Promise((resolve) => setTimeout(resolve, 21_000));
    await Promise.race([quiet, knocks.exited]);
    assert.equal(said, "");
  });
});
