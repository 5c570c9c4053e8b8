import assert from "node:assert/strict";
import { test } from "node:test";
import { ensureResolvConf } from "../../../../../providers/docker/container/create.ts";
import { CodedError } from "../../../../../src/lib/errors.ts";
import { createLogger } from "../../../../../src/lib/log.ts";
import type { FileChange, Host } from "../../../../../src/seams/host.ts";
import { fakeClock } from "../../../../fakes/clock.ts";
import { fakeHost } from "../../../../fakes/host.ts";

const sandbox = { Id: "s1", ResolvConfPath: "/docker/s1/resolv.conf" };
const dns = { servers: ["10.96.0.10"], searches: ["a.b", "c"], options: ["ndots:5", "edns0"] };
const text = "search a.b c\nnameserver 10.96.0.10\noptions ndots:5 edns0\n";
const { signal } = new AbortController();

/** A host with this file for the sandbox, its changes and log. */
async function withFile(content: string, refuse?: CodedError) {
  const files = fakeHost({ clock: fakeClock() });
  await files.fs.apply([
    { kind: "mkdir", path: "/docker/s1", parents: true },
    { kind: "write", path: sandbox.ResolvConfPath, data: content },
  ]);
  const changes: FileChange[] = [];
  const lines: string[] = [];
  const fs: Host["fs"] = {
    ...files.fs,
    readFile: (...given) => files.fs.readFile(...given),
    async apply(made, until) {
      if (refuse) throw refuse;
      changes.push(...made);
      await files.fs.apply(made, until);
    },
  };
  const parts = { host: { ...files, fs }, log: createLogger(0, { write: (line: string) => void lines.push(line) }) };
  return { parts, changes, lines, content: async () => String(await files.fs.readFile(sandbox.ResolvConfPath)) };
}

test("overwrites Docker's resolver in place, unless the file is correct already", async () => {
  const { parts, changes, content } = await withFile("nameserver 127.0.0.11\noptions ndots:0\n");
  await ensureResolvConf(parts, sandbox, dns, signal);
  assert.equal(await content(), text);
  await ensureResolvConf(parts, sandbox, dns, signal);
  assert.deepEqual(changes, [{ kind: "write", path: sandbox.ResolvConfPath, data: text, mode: 0o644 }]);
});

test("changes nothing without a DNS configuration", async () => {
  const { parts, changes } = await withFile("nameserver 127.0.0.11\n");
  await ensureResolvConf(parts, sandbox, undefined, signal);
  assert.deepEqual(changes, []);
});

test("logs missing write access to the file instead of failing", async () => {
  const { parts, lines } = await withFile("nameserver 127.0.0.11\n", new CodedError("permission_denied", "no"));
  await ensureResolvConf(parts, sandbox, dns, signal);
  assert.equal(lines.length, 1);
});

test("throws any failure other than missing write access", async () => {
  const { parts } = await withFile("nameserver 127.0.0.11\n", new CodedError("resource_exhausted", "disk full"));
  await assert.rejects(ensureResolvConf(parts, sandbox, dns, signal), { code: "resource_exhausted" });
});
