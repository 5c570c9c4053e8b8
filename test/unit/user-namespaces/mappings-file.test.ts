import assert from "node:assert/strict";
import { test } from "node:test";
import { formatMappings, parseMappings } from "../../../src/user-namespaces/pod-ids.ts";

const file = (uids: readonly object[], gids: readonly object[] = uids) =>
  JSON.stringify({ uidMappings: uids, gidMappings: gids });
const mapping = { hostId: 131_072, containerId: 0, length: 65_536 };

test("writes and reads the kubelet's file", () => {
  const kubelets =
    '{"uidMappings":[{"hostId":131072,"containerId":0,"length":65536}],"gidMappings":[{"hostId":131072,"containerId":0,"length":65536}]}';
  assert.equal(formatMappings({ first: 131_072, length: 65_536 }), kubelets);
  assert.deepEqual(parseMappings(kubelets), { first: 131_072, length: 65_536 });
});

test("reports the problem of an invalid file", () => {
  const wrong: [string, RegExp][] = [
    ["", /^invalid user namespace mappings file: /],
    ["{", /^invalid user namespace mappings file: /],
    [file([{ ...mapping, hostId: -1 }]), /^invalid user namespace mappings file: -1 is not an ID$/],
    [file([{ ...mapping, length: 2 ** 32 }]), /^invalid user namespace mappings file: 4294967296 is not an ID$/],
    ["{}", /^invalid user namespace configuration: no more than one mapping allowed\.$/],
    [file([mapping, mapping]), /: no more than one mapping allowed\.$/],
    [file([mapping], []), /: GID and UID mappings should be identical\.$/],
    [file([mapping], [{ ...mapping, hostId: 0 }]), /: GID and UID mapping should be identical$/],
    [file([{ ...mapping, containerId: 1 }]), /: UID 0 must be mapped$/],
  ];
  for (const [text, message] of wrong) assert.throws(() => parseMappings(text), { message }, text);
});
