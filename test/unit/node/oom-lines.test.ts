import assert from "node:assert/strict";
import { test } from "node:test";
import { createOomParser } from "../../../src/node/oom-watcher.ts";

/** Kills in the lines. */
function kills(...lines: readonly string[]) {
  const parse = createOomParser();
  return lines.map(parse).filter((kill) => kill !== undefined);
}
const invoked = "4,1000,5000,-;stress invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0";
const header = "6,1001,5001,-;CPU: 1 PID: 7 Comm: stress Not tainted 6.1.0";
const killed = "3,1003,5003,-;Out of memory: Killed process 4711 (stress ng) total-vm:1kB, anon-rss:1kB, UID:0";

test("reports a system-wide OOM kill if no cgroup limit is logged", () => {
  const global =
    "6,1002,5002,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/user.slice,task=stress ng,pid=4711,uid=0";
  assert.deepEqual(kills(invoked, header, global, killed), [{ cgroup: "/", process: "stress ng", pid: 4711 }]);
});

test("reports a cgroup at its limit, and ignores the next line", () => {
  const limited =
    "6,1002,5002,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=cri-1,mems_allowed=0-1,oom_memcg=/kubepods/pod1,task_memcg=/kubepods/pod1/c,task=stress,pid=12,uid=1000";
  const inCgroup = "3,1003,5003,-;Memory cgroup out of memory: Killed process 12 (stress) total-vm:1kB";
  assert.deepEqual(kills(invoked, limited, inCgroup), [{ cgroup: "/kubepods/pod1", process: "stress", pid: 12 }]);
  const before = "6,1,1,-;Task in /kubepods/pod1/c killed as a result of limit of /kubepods/pod1";
  assert.deepEqual(kills(invoked, before, inCgroup), [{ cgroup: "/kubepods/pod1", process: "stress", pid: 12 }]);
});

test("ignores unrelated lines, and a victim's line that lacks the lines before it", () => {
  assert.deepEqual(kills(header, killed, invoked, header), []);
});

test("parses consecutive kills", () => {
  assert.deepEqual(
    kills(invoked, killed, header, invoked, killed).map(({ pid }) => pid),
    [4711, 4711],
  );
});

test("parses repeated keywords in linear time", () => {
  const words = [
    "oom-kill:constraint=",
    ",nodemask=",
    ",cpuset=",
    ",mems_allowed=",
    ",oom_memcg=",
    ",task_memcg=",
    ",task=",
  ];
  const line = words.map((word) => word.repeat(Math.floor(1_100 / word.length))).join("");
  const began = performance.now();
  assert.deepEqual(kills(invoked, line, line, line), []);
  assert.ok(performance.now() - began < 1_000);
});

test("parses names that contain the kernel's keywords", () => {
  const limited =
    "6,1,1,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=0-1,3,cpuset=a,b,mems_allowed=0-1,3,oom_memcg=/kubepods/a,b,task_memcg=/kubepods/a,b/c,task=x,pid=1,uid=0,pid=12,uid=1000";
  assert.deepEqual(kills(invoked, limited), [{ cgroup: "/kubepods/a,b", process: "x,pid=1,uid=0", pid: 12 }]);
});
