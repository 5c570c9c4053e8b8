import assert from "node:assert/strict";
import { test } from "node:test";
import { sshClock, targetTime } from "../../../../providers/ssh/host.ts";
import { fakeClock } from "../../../fakes/clock.ts";

test("parses the output of date with and without nanoseconds", () => {
  assert.equal(targetTime("1795248139 927500000\n"), 1_795_248_139_927.5);
  assert.equal(targetTime("1795248139 %N\n"), 1_795_248_139_500);
  assert.equal(targetTime("1795248139 \n"), 1_795_248_139_500);
  assert.throws(() => targetTime("date: invalid option"), { code: "unknown" });
});

test("subtracts half of the round-trip time", async () => {
  const clock = fakeClock(1_000_000);
  const { offsetMs } = sshClock({
    clock,
    async run() {
      await clock.advance(40);
      return { code: 0, stdout: "1005 020000000\n", stderr: "", truncated: false };
    },
    readFile: () => assert.fail("no file is needed"),
  });
  assert.equal(await offsetMs(), 5000);
});
