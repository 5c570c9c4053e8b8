import assert from "node:assert/strict";
import { test } from "node:test";
import { networkHint } from "../../../../../providers/ssh/connection/network-hint.ts";

const inPod = { KUBERNETES_SERVICE_HOST: "10.96.0.1" };

test("says of a name that cannot be resolved that graftlet's Pod has looked it up, or graftlet's machine", () => {
  assert.equal(
    networkHint("ENOTFOUND", inPod),
    "unknown host name, looked up in graftlet's Pod, by the cluster's DNS: check host; set an address, or hostAliases or dnsConfig in the chart",
  );
  assert.match(networkHint("EAI_AGAIN", inPod), /at the moment, looked up in graftlet's Pod/);
  assert.match(networkHint("ENOTFOUND", {}), /^unknown host name, looked up on graftlet's machine: check host; /);
});

test("has a remedy for every other error of the network, known or not", () => {
  assert.equal(networkHint("ECONNREFUSED", inPod), "connection refused: check port, and that sshd runs");
  assert.equal(networkHint("", {}), "check host and port, and that sshd runs there");
});
