import assert from "node:assert/strict";
import { test } from "node:test";
import { checkResolvConf } from "../../../src/node/resolv-conf-check.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeHost } from "../../fakes/host.ts";

const never = new AbortController().signal;
const domains = (count: number, chars = 3) =>
  `search ${Array.from({ length: count }, (_, at) => String(at).padStart(chars, "d")).join(" ")}\n`;

async function eventsOf(text: string | undefined, clusterDomain = "", resolvConf = "/etc/resolv.conf") {
  const { fs, files } = fakeHost({ clock: fakeClock() });
  if (text !== undefined) files.put("/etc/resolv.conf", { data: text });
  const sent: string[] = [];
  const events = {
    event: ({ kind, name }: { kind: string; name: string }, type: string, reason: string, message: string) =>
      void sent.push(`${kind}/${name} ${type} ${reason}: ${message}`),
  };
  await checkResolvConf({ fs, nodeName: "node", resolvConf, clusterDomain, events }, never);
  return sent;
}

test("emits a warning about the Node if pods cannot use the resolver file's search list, in the kubelet's words", async () => {
  const file = "Node/node Warning CheckLimitsForResolvConf: Resolv.conf file";
  const named = `${file} '/etc/resolv.conf' contains search line`;
  assert.deepEqual(await eventsOf(domains(32)), []);
  assert.deepEqual(await eventsOf(domains(33)), [`${named} consisting of more than 32 domains!`]);
  assert.deepEqual(await eventsOf(domains(29), "cluster.local"), []);
  assert.deepEqual(await eventsOf(domains(30), "cluster.local"), [`${named} consisting of more than 29 domains!`]);
  assert.deepEqual(await eventsOf(domains(1, 254)), [
    `${file} "/etc/resolv.conf" contains a search path which length is more than allowed 253 chars!`,
  ]);
  assert.deepEqual(await eventsOf(domains(10, 250)), [`${named} which length is more than allowed 2048 chars!`]);
});

test("emits a warning about the Node if the resolver file cannot be read, and checks nothing without a resolver file", async () => {
  assert.match(
    String(await eventsOf(undefined)),
    /^Node\/node Warning CheckLimitsForResolvConf: .*\/etc\/resolv\.conf/,
  );
  assert.match(String(await eventsOf("nameserver\n")), /CheckLimitsForResolvConf: /);
  assert.deepEqual(await eventsOf(undefined, "", ""), []);
});
