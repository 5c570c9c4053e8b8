import assert from "node:assert/strict";
import { test } from "node:test";
import { CgroupDriver, RuntimeConfigResponse } from "../../../src/gen/cri.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { createLogger, silentLog } from "../../../src/lib/log.ts";
import { createCgroupLayout } from "../../../src/cgroups/cgroup-layout.ts";
import type { RuntimeConfig } from "../../../src/seams/runtime.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { never } from "../../fakes/signals.ts";

test("uses the runtime's cgroup driver, or the configured one with older runtimes; retries while the runtime is down", async () => {
  const kubelet = { cgroupDriver: "cgroupfs", cgroupRoot: "/", cgroupsPerQOS: true } as const;
  const answers: (() => Promise<RuntimeConfigResponse>)[] = [
    () => Promise.reject(new CodedError("unavailable", "down")),
    async () => RuntimeConfigResponse.fromPartial({ linux: { cgroupDriver: CgroupDriver.SYSTEMD } }),
  ];
  const said: string[] = [];
  let outdated = 0;
  const layout = createCgroupLayout({
    runtime: { runtimeConfig: () => answers.shift()?.() ?? assert.fail("asked again") },
    kubelet,
    onOutdatedRuntime: () => void outdated++,
    clock: fakeClock(),
    log: createLogger(0, { write: (line) => void said.push(line) }),
  });
  await assert.rejects(layout(never), { code: "unavailable" });
  const both = await Promise.all([layout(never), layout(never)]);
  assert.deepEqual(
    [...both, await layout(never)].map(({ driver }) => driver),
    ["systemd", "systemd", "systemd"],
  );
  assert.equal(said.length, 1, said.join(""));
  assert.match(said[0] ?? "", /using the runtime's cgroup driver instead of the configured one/);
  assert.equal(outdated, 0);
  const old = async (runtimeConfig: () => Promise<RuntimeConfig>) =>
    (
      await createCgroupLayout({
        runtime: { runtimeConfig },
        kubelet,
        onOutdatedRuntime: () => void outdated++,
        clock: fakeClock(),
        log: silentLog(),
      })(never)
    ).driver;
  assert.equal(await old(() => Promise.reject(new CodedError("unimplemented", "no"))), "cgroupfs");
  assert.equal(outdated, 1);
  const systemd = RuntimeConfigResponse.fromPartial({ linux: { cgroupDriver: CgroupDriver.SYSTEMD } });
  assert.equal(await old(async () => ({ ...systemd, isInferred: true })), "systemd");
  assert.equal(outdated, 2);
});
