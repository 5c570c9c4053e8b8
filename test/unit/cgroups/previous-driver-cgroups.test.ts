import assert from "node:assert/strict";
import { test } from "node:test";
import { createLogger } from "../../../src/lib/log.ts";
import { findFormerCgroups } from "../../../src/cgroups/node-cgroups.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeHost } from "../../fakes/host.ts";
import { never } from "../../fakes/signals.ts";

const mount = "/sys/fs/cgroup";

async function rig(groups: readonly string[], directories: readonly string[]) {
  const clock = fakeClock();
  const host = fakeHost({ clock });
  host.files.put(`${mount}/cgroup.controllers`, { data: "cpu memory pids\n" });
  for (const path of [...groups.map((group) => mount + group), ...directories.map((uid) => `/root/pods/${uid}`)])
    await host.fs.apply([{ kind: "mkdir", path, parents: true }]);
  host.program("sh", () => 0);
  const lines: string[] = [];
  const layout = { driver: "systemd", root: "/", perQos: true } as const;
  const log = createLogger(0, { write: (line: string) => void lines.push(line) });
  const former = await findFormerCgroups({ host, rootDir: "/root", layout, version: 2, clock, log }, never);
  const left = () =>
    host.files
      .tree(mount)
      .filter((path) => !path.includes("."))
      .map((path) => path.slice(mount.length));
  return { former, lines, left };
}

test("logs pod cgroups of the previous driver, and removes each with its pod, and the parents with the last pod", async () => {
  const groups = ["/kubepods/pod1", "/kubepods/burstable/pod2", "/kubepods/besteffort"];
  const { former, lines, left } = await rig(groups, ["1", "2", "3"]);
  assert.equal(lines.length, 1);
  assert.match(lines[0] ?? "", /"pods":2,"was":"cgroupfs","is":"systemd".*cgroup driver has changed/);
  await former?.remove("3", never);
  await former?.remove("1", never);
  await former?.remove("1", never);
  assert.deepEqual(left(), ["/kubepods", "/kubepods/besteffort", "/kubepods/burstable", "/kubepods/burstable/pod2"]);
  await former?.remove("2", never);
  assert.deepEqual(left(), []);
});

test("keeps the pod cgroups of other nodes, and their parents", async () => {
  const { former, left } = await rig(["/kubepods/pod1", "/kubepods/burstable/pod2"], ["1"]);
  await former?.remove("2", never);
  await former?.remove("1", never);
  assert.deepEqual(left(), ["/kubepods", "/kubepods/burstable", "/kubepods/burstable/pod2"]);
  const none = await rig(["/kubepods/pod1"], ["2"]);
  assert.deepEqual([none.former, none.lines], [undefined, []]);
});
