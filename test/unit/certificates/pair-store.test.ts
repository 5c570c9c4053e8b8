import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { filePairStore } from "../../../src/certificates/pair-store.ts";
import { makeSelfSigned } from "../../../src/certificates/self-signed.ts";

const { signal } = new AbortController();

test("replaces the file of the old pair with the new one, and ignores a certificate whose key belongs to another pair", async () => {
  const dir = mkdtempSync(join(tmpdir(), "graftlet-pairs-"));
  try {
    const store = filePairStore(join(dir, "pki"), "kubelet-client");
    const [first, second] = [await makeSelfSigned("a", [], 0), await makeSelfSigned("a", [], 0)];
    await store.write(first, 0, signal);
    await store.write(second, 1000, signal);
    const names = readdirSync(join(dir, "pki")).sort();
    assert.deepEqual(names, ["kubelet-client-1970-01-01-00-00-01.pem", "kubelet-client-current.pem"]);
    const [file = ""] = names;
    assert.equal(statSync(join(dir, "pki", file)).mode & 0o777, 0o600);
    assert.deepEqual(await store.read(signal), second);
    writeFileSync(join(dir, "pki", file), second.certificate + first.key);
    assert.equal(await store.read(signal), undefined);
    const blocked = join(dir, "a file");
    writeFileSync(blocked, "");
    await assert.rejects(
      filePairStore(blocked, "x").write(first, 0, signal),
      /^CodedError: cert-dir ".*\/a file" is not/,
    );
  } finally {
    rmSync(dir, { recursive: true });
  }
});
