import assert from "node:assert/strict";
import { test } from "node:test";
import { readFacts } from "../../../src/host/facts.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { unfitReason } from "../../../src/node/reboot-watch.ts";
import { TargetError } from "../../../src/seams/provider.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeHost } from "../../fakes/host.ts";
import { furnish } from "../../fakes/machine.ts";

const never = new AbortController().signal;

/** The check on a machine, whose locks are renewed as given. */
async function check(renewClaim: () => Promise<void>, memory = "MemTotal: 4000000 kB\n") {
  const host = fakeHost({ clock: fakeClock() });
  furnish(host);
  for (const [path, data] of Object.entries({
    "/proc/cpuinfo": "processor\t: 0\n",
    "/proc/sys/kernel/pid_max": "4194304\n",
    "/proc/sys/kernel/threads-max": "192542\n",
  }))
    host.files.put(path, { data });
  const facts = await readFacts(host, never);
  host.files.put("/proc/meminfo", { data: memory });
  return unfitReason({ host, renewClaim, facts }, never);
}

test("an unchanged target can continue to be used", async () => {
  assert.equal(await check(async () => {}), undefined);
});

test("a changed target cannot continue to be used", async () => {
  const why = await check(async () => {}, "MemTotal: 8000000 kB\n");
  assert.match(why ?? "", /^changed: .*memoryBytes/);
});

test("a target that another agent uses cannot continue to be used", async () => {
  const taken = new TargetError("RuntimeInUse", "failed_precondition", "another agent uses the runtime");
  assert.equal(await check(() => Promise.reject(taken)), "another agent uses the runtime");
});

test("a target whose locks cannot be renewed is checked again", async () => {
  await assert.rejects(
    check(() => Promise.reject(new CodedError("unavailable", "it is away"))),
    { code: "unavailable" },
  );
});
