import assert from "node:assert/strict";
import { test } from "node:test";
import { sysctlsAllowed } from "../../../src/admission/sysctls.ts";
import type { PodSpec } from "../../../src/objects.ts";
import { aPod } from "../../fakes/pods.ts";
import { sysctlName } from "../../../src/pod/security.ts";

const nodeInfo = (kernelVersion: string) => ({ status: { nodeInfo: { kernelVersion } } });

function refusal(
  name: string,
  spec: Partial<PodSpec> = {},
  allowed: readonly string[] = [],
  kernel = "6.1.0-13-amd64",
) {
  const pod = aPod({ securityContext: { sysctls: [{ name, value: "1" }] }, ...spec });
  const node = { metadata: { name: "node" }, ...nodeInfo(kernel) } as Parameters<
    ReturnType<typeof sysctlsAllowed>
  >[0]["node"];
  const refused = sysctlsAllowed(allowed)({ pod, otherPods: [], node, allocatable: {} });
  assert.ok(refused === undefined || refused.reason === "SysctlForbidden");
  return refused?.message;
}

test("allows safe sysctls, written with dots or slashes, on kernels that namespace them", () => {
  assert.equal(refusal("kernel.shm_rmid_forced"), undefined);
  assert.equal(refusal("net/ipv4/tcp_syncookies"), undefined);
  assert.equal(refusal("net.ipv4.tcp_rmem", {}, [], "4.15.0"), undefined);
  assert.equal(refusal("net.ipv4.tcp_rmem", {}, [], "4.14.9"), 'forbidden sysctl: "net.ipv4.tcp_rmem" not allowlisted');
  assert.equal(refusal("net.ipv4.ip_local_port_range", {}, [], "unknown"), undefined);
});

test("allows unsafe sysctls only if they are listed by name or prefix", () => {
  assert.equal(refusal("kernel.msgmax"), 'forbidden sysctl: "kernel.msgmax" not allowlisted');
  assert.equal(refusal("kernel.msgmax", {}, ["kernel.msg*"]), undefined);
  assert.equal(refusal("net.core.somaxconn", {}, ["kernel.msg*", "net/core/somaxconn"]), undefined);
  assert.equal(
    refusal("net.core.somaxconn2", {}, ["net.core.somaxconn"]),
    'forbidden sysctl: "net.core.somaxconn2" not allowlisted',
  );
});

test("rejects sysctls of the host's namespaces", () => {
  const net = 'forbidden sysctl: "net.ipv4.tcp_syncookies" not allowed with host Net enabled';
  assert.equal(refusal("net.ipv4.tcp_syncookies", { hostNetwork: true }), net);
  assert.equal(refusal("net.ipv4.tcp_syncookies", { hostIPC: true }), undefined);
  const ipc = 'forbidden sysctl: "kernel.msgmax" not allowed with host IPC enabled';
  assert.equal(refusal("kernel.msgmax", { hostIPC: true }, ["kernel.msg*"]), ipc);
  assert.equal(refusal("kernel.msgmax", { hostNetwork: true }, ["kernel.msg*"]), undefined);
});

test("keeps dots inside the segments of a sysctl name separated by slashes", () => {
  assert.equal(sysctlName("net/ipv4/conf/eth0.100/rp_filter"), "net.ipv4.conf.eth0/100.rp_filter");
  assert.equal(sysctlName("net.ipv4.conf.eth0/100.rp_filter"), "net.ipv4.conf.eth0/100.rp_filter");
});
