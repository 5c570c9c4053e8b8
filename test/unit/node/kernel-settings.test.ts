import assert from "node:assert/strict";
import { test } from "node:test";
import { applyKernelSettings } from "../../../src/node/kernel-settings.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeHost } from "../../fakes/host.ts";

const { signal } = new AbortController();
const right = {
  "vm/overcommit_memory": "1",
  "vm/panic_on_oom": "0",
  "kernel/panic": "10",
  "kernel/panic_on_oops": "1",
  "kernel/keys/root_maxkeys": "1000000",
  "kernel/keys/root_maxbytes": "25000000",
};

/** A target with these settings; an undefined one is missing. */
async function targetWith(settings: Readonly<Record<string, string | undefined>>) {
  const host = fakeHost({ clock: fakeClock() });
  for (const [flag, value] of Object.entries(settings))
    if (value !== undefined)
      await host.fs.apply(
        [
          { kind: "mkdir", path: `/proc/sys/${flag.slice(0, flag.lastIndexOf("/"))}`, parents: true },
          { kind: "write", path: `/proc/sys/${flag}`, data: `${value}\n` },
        ],
        signal,
      );
  return host;
}

test("accepts the kernel settings that a kubelet sets", async () => {
  await applyKernelSettings(await targetWith(right), "check", signal);
});

test("rejects one or several differing kernel settings in the kubelet's words", async () => {
  const one = await targetWith({ ...right, "kernel/panic": "0" });
  await assert.rejects(applyKernelSettings(one, "check", signal), {
    reason: "KernelSettings",
    message: "invalid kernel flag: kernel/panic, expected value: 10, actual value: 0",
  });
  const several = await targetWith({ ...right, "vm/overcommit_memory": "2", "kernel/keys/root_maxkeys": undefined });
  await assert.rejects(applyKernelSettings(several, "check", signal), {
    message:
      /^\[invalid kernel flag: vm\/overcommit_memory, expected value: 1, actual value: 2, cannot read \/proc\/sys\/kernel\/keys\/root_maxkeys: .*\]$/,
  });
});

test("sets the kernel settings that differ, and names one that cannot be set", async () => {
  const host = await targetWith({ ...right, "kernel/panic": "0", "vm/panic_on_oom": "2" });
  await applyKernelSettings(host, "set", signal);
  await applyKernelSettings(host, "check", signal);
  const { "kernel/keys/root_maxkeys": _missing, ...rest } = right;
  await assert.rejects(applyKernelSettings(await targetWith(rest), "set", signal), {
    reason: "KernelSettings",
    message: /^cannot set \/proc\/sys\/kernel\/keys\/root_maxkeys: /,
  });
});
