import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { SshHost } from "../../providers/ssh/host.ts";
import { claimTarget } from "../../src/process/claim.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { createLogger } from "../../src/lib/log.ts";
import type { Sharing } from "../../src/seams/provider.ts";
import { waitFor } from "../harness/wait.ts";
import { sshBench } from "./ssh-bench.ts";
import { argvOf } from "../harness/argv.ts";

const never = new AbortController().signal;

describe("a claim on a target over SSH", () => {
  const { rig, hostOf, isUp } = sshBench("claim");
  const claim = (host: SshHost, name: string, sharing: Sharing = "exclusive") => {
    const { dir } = rig();
    const runtimeSocket = async () => `${dir}/run/runtime.sock`;
    return claimTarget(
      {
        target: { host, sharing, runtimeSocket },
        clock: systemClock(),
        log: createLogger(0, { write: () => undefined }),
      },
      { nodeName: name, rootDir: `${dir}/${name}`, kubelet: { podLogsDir: `${dir}/logs` } },
      never,
    );
  };
  const makeRuntimeDirectory = (host: SshHost) =>
    host.fs.apply([{ do: "mkdir", path: `${rig().dir}/run`, parents: true }]);
  const isFree = async (path: string) => (await rig().inside(["flock", "--nonblock", path, "true"])).code === 0;
  /** Loses the link, and everything that it kept on the target. */
  const breakLink = async (host: SshHost, meanwhile: () => Promise<unknown>) => {
    await rig().killSshd();
    await waitFor("the loss", () => host.link.state().is !== "up", { everyMs: 10 });
    await meanwhile();
    await rig().startSshd();
    host.run(argvOf(["true"])).catch(() => undefined);
    await isUp(host);
  };

  test("lost with the link, it is taken again, the runtime's with it", async () => {
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

  test("taken by another while the link was down, it is the other's", async () => {
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

  test("two graftlets with root directories of their own meet at the runtime, unless both share it", async () => {
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
