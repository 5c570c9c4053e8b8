import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { deleteLogins, authorizedKeysOf, writeAuthorizedKeys, writeLogin } from "../../../src/fleet/login-files.ts";
import { RefusedObject } from "../../../src/fleet/refusal.ts";

const secretWith = (data: Readonly<Record<string, string>>) => ({
  metadata: { name: "login", namespace: "edge", uid: "1" },
  data: Object.fromEntries(Object.entries(data).map(([key, text]) => [key, Buffer.from(text).toString("base64")])),
});
const login = { secretRef: { name: "login" } };

function place(t: { after(fn: () => void): void }) {
  const root = mkdtempSync(join(tmpdir(), "graftlet-login-"));
  t.after(() => rmSync(root, { recursive: true, force: true }));
  return { directory: join(root, "edge-1", "0"), at: "spec.ssh" };
}

test("writes a login to files that only graftlet can read, and returns their paths as fields of the provider", async (t) => {
  const where = place(t);
  const secret = secretWith({ "ssh-privatekey": "KEY", "ssh-passphrase": "word", known_hosts: "a b c", other: "x" });
  assert.deepEqual(await writeLogin(login, secret, where), {
    privateKeyFile: join(where.directory, "ssh-privatekey"),
    passphraseFile: join(where.directory, "ssh-passphrase"),
    knownHostsFile: join(where.directory, "known_hosts"),
  });
  assert.equal(readFileSync(join(where.directory, "ssh-privatekey"), "utf8"), "KEY");
  assert.equal(statSync(join(where.directory, "ssh-privatekey")).mode & 0o777, 0o600);
  assert.equal(statSync(where.directory).mode & 0o777, 0o700);
});

test("rewrites the file of a changed key, keeps unchanged files, and deletes files of keys removed from the Secret", async (t) => {
  const where = place(t);
  await writeLogin(login, secretWith({ "ssh-privatekey": "OLD", "ssh-passphrase": "w", known_hosts: "k" }), where);
  const inode = () => statSync(join(where.directory, "known_hosts")).ino;
  const before = inode();
  await writeLogin(login, secretWith({ "ssh-privatekey": "NEW", known_hosts: "k" }), where);
  assert.equal(readFileSync(join(where.directory, "ssh-privatekey"), "utf8"), "NEW");
  assert.equal(inode(), before);
  assert.deepEqual(readdirSync(where.directory).toSorted(), ["known_hosts", "ssh-privatekey"]);
  await deleteLogins(where.directory);
  assert.throws(() => readdirSync(where.directory), { code: "ENOENT" });
});

test("prefers a key to a password, and host keys in the specification to those in the Secret", async (t) => {
  const where = place(t);
  const both = secretWith({ "ssh-privatekey": "KEY", "ssh-password": "word", known_hosts: "k" });
  assert.deepEqual(Object.keys(await writeLogin({ ...login, hostKeyFingerprints: ["SHA256:x"] }, both, where)), [
    "privateKeyFile",
  ]);
  const password = await writeLogin(login, secretWith({ "ssh-password": "word" }), where);
  assert.deepEqual(Object.keys(password), ["passwordFile"]);
});

test("rejects a Secret that is missing, has no login or is far too large, with an error of one sentence", async (t) => {
  const where = place(t);
  const refusal = async (secret: Parameters<typeof writeLogin>[1]) => {
    const error = await writeLogin(login, secret, where).catch((thrown: unknown) => thrown);
    assert.ok(error instanceof RefusedObject);
    return `${error.reason}: ${error.message}`;
  };
  const named = 'spec.ssh.secretRef names Secret "login", which';
  assert.equal(
    await refusal(undefined),
    `LoginSecretMissing: ${named} does not exist in the object's namespace: create it, or use another`,
  );
  assert.equal(
    await refusal(secretWith({ known_hosts: "k" })),
    `LoginSecretUnusable: ${named} has neither ssh-privatekey nor ssh-password: add one of them`,
  );
  assert.match(
    await refusal(secretWith({ "ssh-privatekey": "x".repeat(70_000) })),
    /more than 64 KiB in ssh-privatekey/,
  );
  assert.deepEqual(await writeLogin({}, undefined, where), {});
});

test("reads the keys of a machine with a reverse tunnel from the specification, otherwise from the Secret", async (t) => {
  const { directory } = place(t);
  const secret = secretWith({ authorized_keys: "ssh-ed25519 SECRET" });
  const secretRef = { name: "login" };
  const written = async (reverse: object) =>
    readFileSync(await writeAuthorizedKeys(authorizedKeysOf({ secretRef, reverse }, secret), directory), "utf8");
  assert.equal(await written({}), "ssh-ed25519 SECRET\n");
  assert.equal(await written({ authorizedKeys: ["ssh-ed25519 A", "ssh-rsa B"] }), "ssh-ed25519 A\nssh-rsa B\n");
  const refusal = (empty: typeof secret | undefined) => {
    try {
      return authorizedKeysOf({ secretRef, reverse: {} }, empty);
    } catch (error) {
      return error instanceof RefusedObject ? `${error.reason}: ${error.message}` : String(error);
    }
  };
  assert.match(refusal(undefined), /^MachineKeyMissing: spec\.ssh\.reverse needs the public key/);
  assert.match(refusal(secretWith({ "ssh-privatekey": "K" })), /^MachineKeyMissing/);
  assert.match(
    refusal(secretWith({ authorized_keys: "x".repeat(70_000) })),
    /^LoginSecretUnusable: .* more than 64 KiB in authorized_keys/,
  );
});
