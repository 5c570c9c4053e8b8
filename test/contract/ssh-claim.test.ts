import assert from "node:assert/strict";
import { join } from "node:path";
import { describe, test } from "node:test";
import type { SshHost } from "../../providers/ssh/host.ts";
import { createTargetLink } from "../../providers/ssh/provider.ts";
import { type NodeClaimDeps, claimTarget } from "../../src/process/claim.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { silentLog } from "../../src/lib/log.ts";
import type { Sharing } from "../../src/seams/provider.ts";
import { never } from "../fakes/signals.ts";
import { start } from "../harness/processes.ts";
import { waitFor } from "../harness/wait.ts";
import { sshBench } from "./ssh-bench.ts";
import { within } from "./waiting.ts";
import { argvOf } from "../harness/argv.ts";

describe("the lock of a target over SSH", () => {
  const { rig, hostOf, isUp } = sshBench("claim");
  const claim = (host: SshHost, name: string, sharing: Sharing = "exclusive", pulse?: NodeClaimDeps["pulse"]) => {
    const { dir } = rig();
    const runtimeSocket = async () => `${dir}/run/runtime.sock`;
    return claimTarget(
      {
        target: { host, sharing, runtimeSocket, link: createTargetLink(host.link) },
        clock: systemClock(),
        log: silentLog(),
        ...(pulse && { pulse }),
      },
      { nodeName: name, rootDir: `${dir}/${name}`, kubelet: { podLogsDir: `${dir}/logs` } },
      never,
    );
  };
  const makeRuntimeDirectory = (host: SshHost) =>
    host.fs.apply([{ kind: "mkdir", path: `${rig().dir}/run`, parents: true }]);
  const isFree = async (path: string) => (await rig().inside(["flock", "--nonblock", path, "true"])).code === 0;
  /** Loses the link, and everything that it kept on the target. */
  const breakLink = async (host: SshHost, meanwhile: () => Promise<unknown>) => {
    await rig().killSshd();
    await waitFor("the loss", () => host.link.state().kind !== "up", { everyMs: 10 });
    await meanwhile();
    await rig().startSshd();
    host.run(argvOf(["true"])).catch(() => undefined);
    await isUp(host);
  };

  test("re-acquires the locks of the target and its runtime after the link was lost", async () => {
    await using host = hostOf();
    await makeRuntimeDirectory(host);
    await using own = await claim(host, "one");
    const locks = [`${rig().dir}/one/graftlet/lock`, `${rig().dir}/run`];
    for (const path of locks) assert.equal(await isFree(path), false, path);
    await breakLink(host, async () => {
      for (const path of locks) assert.equal(await isFree(path), true, path);
    });
    await own.renew(never);
    for (const path of locks) assert.equal(await isFree(path), false, path);
  });

  test("leaves the target to another agent that acquired the lock while the link was down", async () => {
    await using host = hostOf();
    await makeRuntimeDirectory(host);
    await using own = await claim(host, "two");
    let rival = "";
    const path = `${rig().dir}/two/graftlet/lock`;
    await breakLink(host, async () => {
      const hold = `flock --no-fork ${path} sleep 3600 </dev/null >/dev/null 2>&1 & echo $!`;
      rival = (await rig().mustInside(["sh", "-c", hold])).trim();
      await waitFor("the other to have it", async () => !(await isFree(path)));
    });
    await assert.rejects(own.renew(never), { reason: "RuntimeInUse" });
    await rig().mustInside(["kill", rival]);
    await own.renew(never);
    assert.equal(await isFree(path), false);
  });

  test("notices that the lock is lost while the link is up, when its holder is killed or hangs, and re-acquires it", async () => {
    await using host = hostOf();
    await makeRuntimeDirectory(host);
    for (const signal of ["KILL", "STOP"]) {
      await using own = await claim(host, "killed", "exclusive", { intervalMs: 500, timeoutSeconds: 2 });
      const path = `${rig().dir}/killed/graftlet/lock`;
      const lost = new Promise<void>((resolve) => void own.onLost(resolve));
      const holders = `for fd in /proc/[0-9]*/fd/8; do [ "$(readlink $fd)" = ${path} ] && p=\${fd#/proc/} && echo \${p%%/*}; done; true`;
      const pids = (await rig().mustInside(["sh", "-c", holders])).trim().split("\n");
      await rig().mustInside(["kill", `-${signal}`, ...pids]);
      await within(lost, 20_000);
      assert.deepEqual([own.isLost(), own.isVerified()], [true, false]);
      assert.equal(host.link.state().kind, "up");
      await own.renew(never);
      assert.deepEqual([own.isLost(), own.isVerified(), await isFree(path)], [false, true, false]);
    }
  });

  test("changes nothing on the target after a pause longer than the lock's timeout if another agent has the lock", async (t) => {
    const { dir } = rig();
    const [root, file] = [`${dir}/frozen`, `${dir}/written`];
    const entry = join(import.meta.dirname, "ssh-claim-entry.ts");
    const process = start(["node", entry, JSON.stringify(rig().login), root, file], { stdio: "pipe" });
    t.after(() => process.kill("SIGKILL"));
    let said = "";
    for (const stream of [process.stdout, process.stderr]) stream?.on("data", (chunk: Buffer) => (said += chunk));
    const written = async () => (await rig().inside(["cat", file])).stdout.length;
    await waitFor("the first to write", async () => (await written()) > 0, { explain: () => said });
    process.kill("SIGSTOP");
    await waitFor("its lock to be free", () => isFree(`${root}/graftlet/lock`));
    await using host = hostOf();
    await using _other = await claim(host, "frozen");
    const before = await written();
    process.kill("SIGCONT");
    await waitFor("the first to notice", () => process.exitCode !== null, { explain: () => said });
    assert.equal(said, "claimed\nunavailable\n");
    assert.equal(await written(), before);
  });

  test("two graftlets with their own root directories exclude each other at the runtime, unless both share it", async () => {
    await using host = hostOf();
    await using other = hostOf();
    await makeRuntimeDirectory(host);
    {
      await using _first = await claim(host, "three");
      await assert.rejects(claim(other, "four"), {
        message: /^the container runtime in .*\/run on the target is in use by another graftlet \(RuntimeInUse\): /,
      });
    }
    await using _first = await claim(host, "three", "shared");
    await assert.rejects(claim(other, "four"), { reason: "RuntimeInUse" });
    await using _second = await claim(other, "four", "shared");
  });
});
