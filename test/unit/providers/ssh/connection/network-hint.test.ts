import assert from "node:assert/strict";
import { test } from "node:test";
import { networkHint } from "../../../../../providers/ssh/connection/network-hint.ts";

const inPod = { KUBERNETES_SERVICE_HOST: "10.96.0.1" };

test("names graftlet's Pod or graftlet's machine as the place where a host name could not be resolved", () => {
  assert.equal(
    networkHint("ENOTFOUND", inPod),
    "unknown host name, looked up in graftlet's Pod, by the cluster's DNS: check host; set an address, or hostAliases or dnsConfig in the chart",
  );
  assert.match(networkHint("EAI_AGAIN", inPod), /at the moment, looked up in graftlet's Pod/);
  assert.match(networkHint("ENOTFOUND", {}), /^unknown host name, looked up on graftlet's machine: check host; /);
});

test("gives a remedy for every other network error, known or not", () => {
  assert.equal(networkHint("ECONNREFUSED", inPod), "connection refused: check port, and that sshd runs");
  assert.equal(networkHint("", {}), "check host and port, and that sshd runs there");
});
