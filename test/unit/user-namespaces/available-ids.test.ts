import assert from "node:assert/strict";
import { test } from "node:test";
import { CodedError } from "../../../src/lib/errors.ts";
import type { Argv } from "../../../src/seams/command.ts";
import { type IdSettings, readAvailableIds } from "../../../src/user-namespaces/available-ids.ts";
import { never } from "../../fakes/signals.ts";

const defaults = { idsPerPod: 65_536, maxPods: 110 };

/** Reads the IDs of a machine where these commands print this, or exit with that code; others are not there. */
function read(outputs: Readonly<Record<string, string | number>>, settings: IdSettings = defaults) {
  const run = async (argv: Argv) => {
    const output = outputs[argv.filter((word) => word !== "--").join(" ")];
    if (output === undefined) throw new CodedError("not_found", `no ${argv[0]}`);
    const [code, stdout] = typeof output === "number" ? [output, ""] : [0, output];
    return { code, stdout, stderr: "", truncated: false };
  };
  return readAvailableIds({ run }, settings, never);
}

const ids = (line: string, groups: string | number = line) => ({
  "id -u kubelet": "998\n",
  "getsubids kubelet": line,
  "getsubids -g kubelet": groups,
});

test("without the user kubelet or without getsubids, all IDs between the machine's own and the last range are available", async () => {
  const all = { first: 65_536, length: 2 ** 32 - 2 * 65_536 };
  assert.deepEqual(await read({ "id -u kubelet": 1 }), all);
  assert.deepEqual(await read({ "id -u kubelet": "998\n" }), all);
  assert.deepEqual(await read({ "id -u kubelet": 1 }, { idsPerPod: 2 ** 27, maxPods: 31 }), {
    first: 2 ** 27,
    length: 30 * 2 ** 27,
  });
});

test("the subordinate IDs of the user kubelet are available", async () => {
  assert.deepEqual(await read(ids("0: kubelet 65536 7208960\n")), { first: 65_536, length: 7_208_960 });
  assert.deepEqual(await read(ids("0: kubelet 4286578688 8388608\n")), { first: 4_286_578_688, length: 8_323_072 });
});

test("reports in the kubelet's words why subordinate IDs cannot be used", async () => {
  const wrong: [Readonly<Record<string, string | number>>, RegExp][] = [
    [{ ...ids(""), "getsubids kubelet": 1 }, /^error retrieving additional uids for user "kubelet": exit status 1$/],
    [ids("0: kubelet 65536 65536\n", 1), /^error retrieving additional gids for user "kubelet"$/],
    [ids("0: kubelet 1 2\n", "0: kubelet 1 3\n"), /^mismatched subuids and subgids for user "kubelet"$/],
    [ids("0: kubelet 1 2\n1: kubelet 5 2\n"), /^error parsing line ".*": it must contain only one line$/],
    [ids("kubelet 1 2\n"), /^invalid line "kubelet 1 2\\n"$/],
    [ids("0: kubelet -1 2\n"), /^error parsing line "0: kubelet -1 2\\n": "-1" is not an ID$/],
    [ids("0: kubelet 65536 4294967296\n"), /"4294967296" is not an ID$/],
    [ids("0: kubelet 100000 7208960\n"), /^kubelet user assigned ID 100000 is not a multiple of 65536$/],
    [ids("0: kubelet 0 7208960\n"), /^kubelet user assigned ID 0 must be greater or equal to 65536$/],
    [ids("0: kubelet 65536 7208961\n"), /^kubelet user assigned IDs length 7208961 is not a multiple of 65536$/],
    [ids("0: kubelet 65536 7143424\n"), /^kubelet user assigned IDs are not enough to support 110 pods$/],
  ];
  for (const [outputs, message] of wrong) await assert.rejects(read(outputs), { message }, String(message));
});
