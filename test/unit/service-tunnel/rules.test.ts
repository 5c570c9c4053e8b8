import assert from "node:assert/strict";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import {
  type Redirections,
  rulesText,
  ownedTunnelResources,
  tunnelSocket,
  tunnelName,
} from "../../../src/service-tunnel/rules.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeHost } from "../../fakes/host.ts";
import { never } from "../../fakes/signals.ts";

const root = "/var/lib/kubelet/edge-1";
const table = `ip ${tunnelName(root)}`;
const rules: Redirections = {
  port: 1023,
  pods: ["10.88.0.2", "10.88.0.3"],
  tcp: ["10.96.0.1:443"],
  udp: [["10.96.0.10:53", 1022]],
  addresses: ["10.96.0.1", "10.96.0.10"],
};

test("creates the whole table at first, replacing a stale one", () => {
  const text = rulesText(root, rules, undefined);
  assert.ok(text.startsWith(`add table ${table}\ndelete table ${table}\ntable ${table} {`));
  assert.ok(text.includes("redirect to :1023"));
  for (const line of [
    `add element ${table} pods { 10.88.0.2, 10.88.0.3 }`,
    `add element ${table} connections { 10.96.0.1 . 443 }`,
    `add element ${table} datagrams { 10.96.0.10 . 53 : 1022 }`,
    `add element ${table} ports { 1022 }`,
    `add element ${table} cluster { 10.96.0.1, 10.96.0.10 }`,
  ])
    assert.ok(text.split("\n").includes(line), line);
});

test("updates only the changed sets of an existing table, or nothing if none has changed", () => {
  assert.equal(rulesText(root, { ...rules }, rules), "");
  assert.equal(
    rulesText(root, { ...rules, pods: ["10.88.0.3"] }, rules),
    `flush set ${table} pods\nadd element ${table} pods { 10.88.0.3 }\n`,
  );
  assert.equal(
    rulesText(root, { ...rules, udp: [] }, rules),
    `flush map ${table} datagrams\nflush set ${table} ports\n`,
  );
  assert.ok(rulesText(root, { ...rules, port: 1000 }, rules).includes("redirect to :1000"));
});

test("rejects IPv6 in a separate table if pods and Services both have IPv6", () => {
  const six = `ip6 ${tunnelName(root)}`;
  const ipv6 = { pods: ["fd00:99::2"], addresses: ["fd00:96::1"] };
  for (const none of [undefined, { ...ipv6, pods: [] }, { ...ipv6, addresses: [] }])
    assert.ok(!rulesText(root, { ...rules, ...(none && { ipv6: none }) }, undefined).includes("ip6"));
  const text = rulesText(root, { ...rules, ipv6 }, rules);
  assert.ok(text.startsWith(`add table ${six}\ndelete table ${six}\ntable ${six} {`), text);
  assert.match(text, /elements = \{ fd00:99::2 \}[^]*elements = \{ fd00:96::1 \}/);
  assert.equal(rulesText(root, { ...rules, ipv6 }, { ...rules, ipv6 }), "");
  assert.equal(rulesText(root, rules, { ...rules, ipv6 }), `add table ${six}\ndelete table ${six}\n`);
});

test("uses separate tables for nodes on one machine", () => {
  assert.notEqual(tunnelName(root), tunnelName(`${root}0`));
});

test("finds and removes leftover resources; without nft there are none", async () => {
  const host = fakeHost({ clock: fakeClock() });
  assert.deepEqual(await ownedTunnelResources(host, root, never), []);
  const standing = new Set([tunnelName(root)]);
  host.program("nft", async (args, { stdin }) => {
    if (args[0] === "list") return standing.has(args.at(-1) ?? "") ? 0 : 1;
    if ((await text(stdin)).includes(`delete table ${table}`)) standing.clear();
    return 0;
  });
  await host.fs.apply([
    { kind: "mkdir", path: "/run", parents: true },
    { kind: "write", path: tunnelSocket(root), data: "" },
  ]);
  const [left, ...more] = await ownedTunnelResources(host, root, never);
  assert.deepEqual([left?.name, more], [`firewall table ${tunnelName(root)}`, []]);
  await left?.remove(never);
  assert.deepEqual(await ownedTunnelResources(host, root, never), []);
});
