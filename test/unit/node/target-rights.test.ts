import assert from "node:assert/strict";
import { test } from "node:test";
import { CodedError } from "../../../src/lib/errors.ts";
import { createLogger, silentLog } from "../../../src/lib/log.ts";
import { createTargetRights } from "../../../src/node/target-rights.ts";
import type { MissingPrivileges } from "../../../src/seams/provider.ts";
import { never } from "../../fakes/signals.ts";

function rig(answer: () => MissingPrivileges) {
  const logged: string[] = [];
  const log = createLogger(0, { write: (line: string) => void logged.push(line) });
  return { logged, rights: createTargetRights({ missingPrivileges: async () => answer() }, { log }) };
}

test("reports no missing privileges for a local target", async () => {
  const rights = createTargetRights({}, { log: silentLog() });
  assert.equal(await rights.read(never), "whole");
  assert.equal(rights.lacks("fileOwner"), undefined);
});

test("logs each missing privilege once, and keeps it until the target reports otherwise", async () => {
  let answer: MissingPrivileges | undefined = { messages: ["log in as root"], unsupported: { fileOwner: "not root" } };
  const { rights, logged } = rig(() => {
    if (!answer) throw new CodedError("unavailable", "gone");
    return answer;
  });
  assert.equal(rights.lacks("fileOwner"), undefined, "before it has been asked");
  for (let beat = 0; beat < 3; beat++) await rights.read(never);
  assert.deepEqual([rights.lacks("fileOwner"), logged.length], ["not root", 1]);
  answer = undefined;
  assert.deepEqual((await rights.read(never), rights.lacks("fileOwner")), "not root");
  answer = { messages: [], unsupported: {} };
  await rights.read(never);
  assert.equal(rights.lacks("fileOwner"), undefined);
});
