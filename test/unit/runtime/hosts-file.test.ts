import assert from "node:assert/strict";
import { test } from "node:test";
import { addressAfter, createHostsFiles } from "../../../src/runtime/hosts-file.ts";
import { aPod } from "../../fakes/pods.ts";
import { never } from "../../fakes/signals.ts";

test("the address after another one has the next number, within the last part of the address", () => {
  assert.deepEqual(
    ["10.0.0.9", "10.0.0.255", "fd00::9", "fd00::", "fd00::ffff"].map((ip) => addressAfter(ip, 1)),
    ["10.0.0.10", undefined, "fd00::a", "fd00::1", undefined],
  );
});

test("pods that start at the same time are expected to get consecutive addresses, of each family", async () => {
  const files = createHostsFiles({ fs: { readFile: () => assert.fail() }, clusterDomain: () => "" });
  const pod = (name: string) => aPod({}, { uid: name, name });
  const expected = (of: ReturnType<typeof pod>) => files.expected(of).match(/^(\S+)(?=\t[a-z]\d$)/gm) ?? [];
  const of = (one: ReturnType<typeof pod>, ...ips: string[]) => files.of(one, { ips: Promise.resolve(ips) }, never);
  const first = pod("a1");
  assert.equal(files.expected(first), "");
  await of(first, "10.0.0.1", "fd00::1");
  const [a, b] = [pod("a2"), pod("b2")];
  assert.deepEqual(expected(a), ["10.0.0.2", "fd00::2"]);
  assert.deepEqual(expected(b), ["10.0.0.3", "fd00::3"]);
  assert.deepEqual(expected(a), ["10.0.0.2", "fd00::2"]);
  await of(a, "10.0.0.2", "fd00::2");
  assert.deepEqual(expected(pod("c3")), ["10.0.0.4", "fd00::4"]);
  await of(b, "10.0.0.7", "fd00::7");
  // A container of the first pod restarts.
  await of(first, "10.0.0.1", "fd00::1");
  assert.deepEqual(expected(pod("d4")), ["10.0.0.8", "fd00::8"]);
});

test("nothing is expected for a pod with hostNetwork", () => {
  const files = createHostsFiles({ fs: { readFile: () => assert.fail() }, clusterDomain: () => "" });
  assert.equal(files.expected(aPod({ hostNetwork: true })), "");
});
