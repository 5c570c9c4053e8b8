import assert from "node:assert/strict";
import { test } from "node:test";
import { readOptions } from "../../conformance/options.ts";
import { runsSuite } from "../../conformance/suites.ts";
import { createEnds, createProgress } from "../../conformance/progress.ts";

test("by default runs the whole list on graftlet with the cri provider", () => {
  const whole = {
    provider: "cri",
    agent: "graftlet",
    network: "routed",
    focus: undefined,
    list: undefined,
    part: false,
    again: "",
    whole: true,
  };
  assert.deepEqual(readOptions({}), whole);
  assert.deepEqual(readOptions({ PROVIDER: "", AGENT: "", FOCUS: "", PART: "" }), whole);
  assert.deepEqual(readOptions({ PROVIDER: "ssh" }), { ...whole, provider: "ssh" });
});

test("updates the documents only after a full run of graftlet", () => {
  assert.equal(readOptions({ FOCUS: "sig-node" }).focus, "sig-node");
  const inGuest = { PROVIDER: "guest", AGENT: "graftlet" };
  const tunneled = { PROVIDER: "ssh", NETWORK: "tunneled" };
  for (const env of [
    { FOCUS: "sig-node" },
    { PART: "1" },
    { AGENT: "kubelet" },
    { PROVIDER: "ssh-guest" },
    inGuest,
    tunneled,
  ])
    assert.equal(readOptions(env).whole, false, JSON.stringify(env));
});

test("in a guest that is the node, runs the node suite for either agent, and the other suite only for a kubelet", () => {
  const suitesOf = (agent: string) => {
    const options = readOptions({ PROVIDER: "guest", AGENT: agent });
    return [runsSuite("e2e_node", options), runsSuite("e2e", options)];
  };
  assert.deepEqual(suitesOf("kubelet"), [true, true]);
  assert.deepEqual(suitesOf("graftlet"), [true, false]);
  assert.equal(runsSuite("e2e_node", readOptions({ PROVIDER: "ssh-guest" })), false);
});

test("rejects an invalid variable, and names it", () => {
  for (const [env, why] of [
    [
      { PROVIDER: "podman" },
      /^Error: PROVIDER is "podman": it is one of cri, docker, ssh, ssh-guest, ssh-docker-guest, guest$/,
    ],
    [{ AGENT: "k3s" }, /^Error: AGENT is "k3s": it is one of graftlet, kubelet$/],
    [{ AGENT: "kubelet", PROVIDER: "docker" }, /speaks CRI alone: leave out PROVIDER=docker/],
    [{ NETWORK: "isolated" }, /^Error: NETWORK is "isolated": it is one of routed, tunneled$/],
    [{ NETWORK: "tunneled" }, /a node over SSH alone can be: give PROVIDER=ssh in place of cri$/],
    [{ PROVIDER: "ssh", NETWORK: "tunneled", SCORE: "1" }, /a score is of routed nodes: leave out SCORE, or NETWORK$/],
    [{ AGAIN: "yes" }, /^Error: AGAIN is "yes": it is one of 1, all$/],
    [{ PART: "2" }, /^Error: PART is "2": it is one of 1$/],
  ] as const)
    assert.throws(() => readOptions(env), why);
});

test("reports each finished test by name, with a running count", () => {
  const said: string[] = [];
  const line = createEnds(createProgress(2, (text) => said.push(text)));
  for (const text of [
    "------------------------------",
    "• [12.345 seconds]",
    "[sig-node] Pods should run [Conformance]",
    "k8s.io/kubernetes/test/e2e/common/node/pods.go:1",
    "  STEP: • [1.000 seconds]",
    "• [FAILED] [301.500 seconds]",
    "[sig-node] Pods [It] should end",
    "Ran 2 of 7581 Specs in 302.000 seconds",
  ])
    line(text);
  assert.deepEqual(said, [
    "1 of 2: passed after 12 s: [sig-node] Pods should run [Conformance]",
    "2 of 2, 1 not passed: FAILED after 302 s: [sig-node] Pods [It] should end",
  ]);
});

test("in serial runs, reports a test's name before it runs", () => {
  const ends: unknown[] = [];
  const line = createEnds((end) => ends.push(end));
  const separator = "------------------------------";
  const passed = ["[sig-node] A [Serial] [sig-node]", "a.go:1", "  STEP: one", "• [3.000 seconds]"];
  const failed = [
    "[sig-node] B [Serial] [sig-node]",
    "• [FAILED] [4.000 seconds]",
    "[sig-node] B [It] [Serial] [sig-node]",
  ];
  for (const text of [separator, ...passed, separator, ...failed, separator]) line(text);
  assert.deepEqual(ends, [
    { state: "passed", seconds: 3, title: "[sig-node] A [Serial] [sig-node]" },
    { state: "failed", seconds: 4, title: "[sig-node] B [It] [Serial] [sig-node]" },
  ]);
});
