import assert from "node:assert/strict";
import { test } from "node:test";
import { causeOf, limitsWith, parseLimits } from "../../conformance/limits.ts";
import type { ListedTest } from "../../conformance/list.ts";

const listed: readonly ListedTest[] = [
  { suite: "e2e", name: "[sig-node] A" },
  { suite: "e2e_node", name: "[sig-node] A" },
];

test("attributes a failure to a limit only if the limit lists the test with its suite", () => {
  const text = 'docker:\n  - cause: no such thing\n    tests: ["e2e [sig-node] A"]\n';
  const limits = parseLimits(text, "limits", listed);
  assert.deepEqual(limits.cri, []);
  assert.deepEqual(
    listed.map((each) => causeOf(limits.docker, each)),
    ["no such thing", undefined],
  );
});

test("applies a limit that names a network only to that network", () => {
  const text = 'ssh:\n  - cause: no route\n    network: tunneled\n    tests: ["e2e [sig-node] A"]\n';
  const limits = parseLimits(text, "limits", listed);
  assert.deepEqual(limitsWith("ssh", "tunneled", limits), limits.ssh);
  assert.deepEqual(limitsWith("ssh", "routed", limits), []);
});

test("applies the limits of the ssh provider to a guest as well", () => {
  const text = 'docker: []\nssh:\n  - cause: far\n    tests: ["e2e [sig-node] A"]\n';
  const limits = parseLimits(text, "limits", listed);
  assert.deepEqual(limitsWith("ssh-docker-guest", "routed", limits), limits.ssh);
});

test("reports the position of an error in the file", () => {
  for (const [text, why] of [
    ["podman: []", /limits has limits of "podman": it is one of cri, docker, ssh/],
    ["ssh: never", /ssh of limits is no list/],
    ["ssh: [{tests: [e2e A]}]", /ssh\[0\] of limits has no cause/],
    ["ssh: [{cause: far}]", /ssh\[0\] of limits has no tests/],
    ["ssh: [{cause: far, network: odd, tests: ['e2e [sig-node] A']}]", /has the network "odd": it is one of routed,/],
    ["ssh: [{cause: far, tests: [e2e B]}]", /ssh\[0\] of limits names "e2e B", which is not in the list/],
  ] as const)
    assert.throws(() => parseLimits(text, "limits", listed), why);
});
