import assert from "node:assert/strict";
import { test } from "node:test";
import { openCgroups } from "../../../src/host/cgroups.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import type { FileChange } from "../../../src/seams/host.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeHost } from "../../fakes/host.ts";
import { never } from "../../fakes/signals.ts";

const root = "/sys/fs/cgroup";

/** A machine whose v2 root cgroup has the given controllers and enables the first of them. */
function machine(controllers: readonly string[]) {
  const host = fakeHost({ clock: fakeClock() });
  host.files.put(`${root}/cgroup.controllers`, { data: `${controllers.join(" ")}\n` });
  host.files.put(`${root}/cgroup.subtree_control`, { data: `${controllers[0]}\n` });
  host.files.put(`${root}/kubepods/cgroup.controllers`, { data: "cpu\n" });
  host.files.put(`${root}/kubepods/cgroup.subtree_control`, { data: "\n" });
  return host;
}

const told = (changes: readonly FileChange[]) =>
  changes.flatMap((change) =>
    change.kind === "write" && change.path.endsWith("subtree_control")
      ? [`${change.path.slice(root.length)} ${String(change.data)}`]
      : [],
  );

test("enables missing controllers in every ancestor of a new cgroup", async () => {
  const host = machine(["cpu", "memory", "pids"]);
  const cgroups = await openCgroups(host, 2, never);
  await cgroups.ensure("/kubepods/pod1", { pids: 10 }, never);
  assert.deepEqual(told(host.files.changes), [
    "/cgroup.subtree_control +memory",
    "/cgroup.subtree_control +pids",
    "/kubepods/cgroup.subtree_control +cpu",
  ]);
  const before = host.files.changes.length;
  await cgroups.ensure("/kubepods/pod1", {}, never);
  assert.equal(host.files.changes.length, before);
});

test("a controller that the kernel refuses to enable does not stop the others", async () => {
  const host = machine(["cpu", "cpuset", "pids"]);
  host.files.onChange((change) => {
    if (change.kind === "write" && change.data === "+cpuset") throw new CodedError("failed_precondition", "busy");
  });
  const cgroups = await openCgroups(host, 2, never);
  await cgroups.ensure("/kubepods/pod1", { pids: 10 }, never);
  assert.deepEqual(told(host.files.changes), [
    "/cgroup.subtree_control +pids",
    "/kubepods/cgroup.subtree_control +cpu",
  ]);
  assert.equal(host.files.text(`${root}/kubepods/pod1/pids.max`), "10");
});
