import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import { argvOf } from "../harness/argv.ts";
import { waitFor } from "../harness/wait.ts";
import { sshBench } from "./ssh-bench.ts";
import { allOf } from "./waiting.ts";

/** dropbear starts commands in the process group of the connection's own process. */
describe("a target whose SSH server is dropbear", () => {
  const { rig, hostOf } = sshBench("dropbear");
  before(() => rig().startDropbear());

  test("reports that dropbear cannot listen on sockets", async () => {
    await using host = hostOf();
    await assert.rejects(async () => host.listen?.({ unix: `${rig().dir}/socket` }, () => undefined), {
      code: "permission_denied",
      message: /^the target refuses to listen on .*: check that its sshd .* is OpenSSH, as dropbear cannot listen/,
    });
  });

  for (const user of ["root", "helper"])
    test(`killing a command of ${user} affects neither the link nor other commands`, {
      timeout: 60_000,
    }, async () => {
      await using host = hostOf({ user });
      await using other = await host.spawn(argvOf(["cat"]));
      const killed = await host.spawn(argvOf(["sleep", "6789"]));
      await killed[Symbol.asyncDispose]();
      await waitFor(
        "the end of the command",
        async () => (await rig().inside(["pgrep", "-fx", "sleep 6789"])).code !== 0,
      );
      other.stdin.end("still connected");
      assert.deepEqual([await allOf(other.stdout), await other.exited], ["still connected", 0]);
      assert.equal(host.link.state().kind, "up");
      await assert.rejects(host.run(argvOf(["sleep", "6790"]), { timeoutMs: 200 }), { code: "deadline_exceeded" });
      await waitFor(
        "the end of the command",
        async () => (await rig().inside(["pgrep", "-fx", "sleep 6790"])).code !== 0,
      );
      assert.equal((await host.run(argvOf(["echo", "up"]))).stdout, "up\n");
    });
});
