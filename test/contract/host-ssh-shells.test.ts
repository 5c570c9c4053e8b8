import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { sshHost } from "../../providers/ssh/host.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { silentLog } from "../../src/lib/log.ts";
import { waitFor } from "../harness/wait.ts";
import { sshBench } from "./ssh-bench.ts";
import { allOf } from "./waiting.ts";
import { argvOf } from "../harness/argv.ts";

const log = silentLog();

describe("login shells over SSH", () => {
  const { rig, hostOf, isUp } = sshBench("shells");

  for (const shell of ["/bin/tcsh", "/usr/bin/fish"])
    for (const user of ["helper", "plain"])
      test(`supports the user ${user} with the login shell ${shell}, which is not a POSIX shell`, async () => {
        await rig().mustInside(["usermod", "--shell", shell, user]);
        await using undo = new AsyncDisposableStack();
        undo.defer(async () => void (await rig().mustInside(["usermod", "--shell", "/bin/sh", user])));
        await using host = hostOf({ user });
        assert.equal((await host.run(argvOf(["sh", "-c", "echo $0 'a  b'"]))).stdout, "sh a  b\n");
        assert.equal(
          (await host.run(argvOf(["cat"]), { stdin: "$(echo no) `x` (y) {z} ; \\\n" })).stdout,
          "$(echo no) `x` (y) {z} ; \\\n",
        );
        await using child = await host.spawn(argvOf(["sh", "-c", "cat; exit 7"]));
        child.stdin.end("to a command");
        assert.deepEqual([await allOf(child.stdout), await child.exited], ["to a command", 7]);
        const path = `/home/${user}/file`;
        await host.fs.apply([{ kind: "write", path, data: "written", mode: 0o600 }]);
        assert.equal((await host.fs.readFile(path)).toString(), "written");
        await host.fs.apply([{ kind: "remove", path }]);
        await host.fs.fileSystemInfo("/");
      });

  test("takes the link down within two minutes when the login shell begins to hang, and up again once it works", async (t) => {
    const clock = systemClock();
    // What is looked at each minute is looked at each second.
    const hasty = { ...clock, sleep: (ms: number, signal?: AbortSignal) => clock.sleep(Math.min(ms, 1000), signal) };
    await using host = sshHost({ config: rig().config(), clock: hasty, log });
    await host.run(argvOf(["true"]));
    await using stack = new AsyncDisposableStack();
    stack.defer(async () => void (await rig().mustInside(["rm", "-f", "/root/.bashrc"])));
    const began = performance.now();
    await rig().mustInside(["sh", "-c", "echo sleep 600 > /root/.bashrc"]);
    const state = await waitFor(
      "the link to be down",
      () => {
        const now = host.link.state();
        return now.kind === "down" && now;
      },
      { timeoutMs: 120_000 },
    );
    t.diagnostic(`down after ${Math.round(performance.now() - began)} ms`);
    assert.equal(state.why.reason, "LoginShellTimeout");
    assert.match(state.why.message, /^the login shell of root@127\.0\.0\.1:\d+ does not answer within 15 s: check /);
    await assert.rejects(host.fs.stat("/"), { code: "unavailable" });
    await rig().mustInside(["rm", "/root/.bashrc"]);
    await isUp(host);
    assert.equal((await host.run(argvOf(["echo", "again"]))).stdout, "again\n");
  });
});

describe("a target whose only relay program is busybox's nc", () => {
  const { rig, hostOf } = sshBench("nc", { programs: "busybox" });

  test("reports that a login with sudo cannot connect to root's sockets", async () => {
    await rig().mustInside(["sh", "-c", "rm -f /usr/bin/python3* /usr/bin/perl* /usr/bin/socat /usr/bin/nc*"]);
    await using host = hostOf({ user: "helper" });
    const { relays, missing } = await host.privileges(AbortSignal.timeout(20_000));
    assert.match((await host.run(argvOf(["nc", "-h"]))).stderr, /BusyBox/);
    assert.equal(relays.includes("nc"), false);
    assert.match(
      missing.join("\n"),
      /none of python3, perl, socat, nc, ncat, so graftlet cannot connect to root's sockets/,
    );
  });
});
