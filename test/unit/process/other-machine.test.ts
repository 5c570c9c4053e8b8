import assert from "node:assert/strict";
import { test } from "node:test";
import { refuseOtherMachine } from "../../../src/process/other-machine.ts";
import { TargetError } from "../../../src/seams/provider.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeHost } from "../../fakes/host.ts";
import { never } from "../../fakes/signals.ts";

const [first, second] = ["1".repeat(32), "2".repeat(32)];

function machine(id: string | undefined, path = "/etc/machine-id") {
  const host = fakeHost({ clock: fakeClock() });
  if (id !== undefined) host.files.put(path, { data: id });
  return async (expected: string | undefined) => refuseOtherMachine(host, expected, never);
}

test("accepts the expected machine, any machine if none is expected, and a machine without an ID", async () => {
  await machine(`${first}\n`)(first);
  await machine(first, "/var/lib/dbus/machine-id")(first);
  await machine(second)(undefined);
  await machine(undefined)(first);
});

test("refuses another machine, and says how to accept it", async () => {
  const error = await machine(`${second}\n`)(first).catch((why: unknown) => why);
  assert.ok(error instanceof TargetError);
  assert.equal(error.reason, "OtherMachine");
  assert.equal(
    error.message,
    `another machine has this address: its machine ID is ${second}, but the node is bound to ${first}: correct its address, or accept this machine with the annotation graftlet.dev/accept-machine=${second}`,
  );
});

test("does not quote a file that contains no valid machine ID", async () => {
  await assert.rejects(machine("<b>x</b>")(first), {
    message: /its machine ID is not valid, but .*: correct its address$/,
  });
});
