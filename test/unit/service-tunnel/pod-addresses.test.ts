import assert from "node:assert/strict";
import { test } from "node:test";
import { NamespaceMode, PodSandboxState } from "../../../src/gen/cri.ts";
import { createPodAddresses } from "../../../src/service-tunnel/pod-addresses.ts";
import type { RuntimePod } from "../../../src/pipeline.ts";
import { aSandbox, observe } from "../../fakes/pods.ts";
import { aColumn } from "../../fakes/state.ts";

const at = (ip: string, more: Parameters<typeof aSandbox>[0] = {}): RuntimePod =>
  observe([aSandbox({ network: { ip, additionalIps: [] }, ...more })], []);

function setUp(pods: Readonly<Record<string, RuntimePod>>) {
  const seen = aColumn(pods);
  const addresses = createPodAddresses(seen);
  const lists: string[] = [];
  addresses.onChange(() => lists.push(addresses.list().join(" ")));
  return { seen, addresses, lists };
}

test("lists IPv4 addresses of ready sandboxes outside the host network", () => {
  const onHost = { linux: { namespaces: { options: { network: NamespaceMode.NODE } } } } as never;
  const { addresses } = setUp({
    a: at("10.88.0.3"),
    b: observe([aSandbox({ network: { ip: "fd00::2", additionalIps: [{ ip: "10.88.0.2" }] } })], []),
    c: at("10.10.9.1", onHost),
    d: at("10.88.0.4", { state: PodSandboxState.SANDBOX_NOTREADY }),
  });
  assert.deepEqual(addresses.list(), ["10.88.0.2", "10.88.0.3"]);
});

test("lists IPv6 addresses separately", () => {
  const { addresses } = setUp({
    a: at("10.88.0.2", { network: { ip: "10.88.0.2", additionalIps: [{ ip: "fd00::2" }] } }),
  });
  assert.deepEqual([addresses.list(), addresses.listIPv6()], [["10.88.0.2"], ["fd00::2"]]);
});

test("lists a new sandbox's address before and after it is observed", () => {
  const { seen, addresses, lists } = setUp({});
  addresses.add("a", ["10.88.0.2", "fd00::2"]);
  seen.set("b", at("10.88.0.9"));
  seen.set("a", at("10.88.0.2"));
  assert.deepEqual(lists, ["10.88.0.2", "10.88.0.2 10.88.0.9", "10.88.0.2 10.88.0.9"]);
  seen.delete("a");
  assert.deepEqual(addresses.list(), ["10.88.0.9"]);
});

test("removes a pod's addresses although its sandbox is still observed", () => {
  const { seen, addresses } = setUp({ a: at("10.88.0.2") });
  addresses.remove("a");
  assert.deepEqual(addresses.list(), []);
  seen.set("a", at("10.88.0.2", { state: PodSandboxState.SANDBOX_NOTREADY }));
  addresses.add("a", ["10.88.0.5"]);
  assert.deepEqual(addresses.list(), ["10.88.0.5"], "it has a new sandbox");
  seen.set("a", at("10.88.0.5"));
  assert.deepEqual(addresses.list(), ["10.88.0.5"]);
});

test("a pod whose containers may run in a virtual machine, or that is not observed yet, has no namespace to connect from", () => {
  const { addresses } = setUp({ a: at("10.88.0.2", { runtimeHandler: "kata" }), b: at("10.88.0.3"), c: at("fd00::2") });
  addresses.add("d", ["10.88.0.4"]);
  assert.deepEqual(addresses.inNamespaces(), ["10.88.0.3"]);
  addresses.remove("b");
  assert.deepEqual(addresses.inNamespaces(), []);
});
