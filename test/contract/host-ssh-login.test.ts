import assert from "node:assert/strict";
import { chmodSync, chownSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { must } from "../harness/processes.ts";
import { sshBench } from "./ssh-bench.ts";
import { argvOf } from "../harness/argv.ts";

describe("authentication over SSH", () => {
  const { rig, hostOf, downOf, logged } = sshBench("login");

  test("stops at a changed host key, and does not retry in quick succession", async () => {
    const file = join(rig().outside, "changed");
    const [name] = readFileSync(join(rig().outside, "known_hosts"), "utf8").split(" ");
    const other = (
      await must(["sh", "-c", `ssh-keygen -q -t ed25519 -N '' -f ${file}-key && cat ${file}-key.pub`])
    ).split(" ");
    writeFileSync(file, `${name} ${other[0]} ${other[1]}\n`);
    const state = await downOf({ knownHostsFile: file });
    assert.equal(state.why.reason, "HostKeyMismatch");
    assert.match(state.why.message, /presented the ssh-ed25519 key SHA256:.*which is not the one in/);
    assert.ok(state.nextTryAt - Date.now() > 200_000);
  });

  test("refuses an unknown host key; accepts hashed names, fingerprints and trust on first use", async () => {
    const { outside } = rig();
    const [name = "", type, key = ""] = readFileSync(join(outside, "known_hosts"), "utf8").trim().split(" ");
    const empty = join(outside, "empty");
    writeFileSync(empty, "");
    assert.equal((await downOf({ knownHostsFile: empty })).why.reason, "HostKeyUnknown");
    assert.equal((await downOf({ knownHostsFile: join(outside, "none") })).why.reason, "HostKeyUnknown");

    const hashed = join(outside, "hashed");
    writeFileSync(hashed, `${name} ${type} ${key}\n`);
    await must(["ssh-keygen", "-H", "-f", hashed]);
    assert.match(readFileSync(hashed, "utf8"), /^\|1\|/);
    await using byHash = hostOf({ knownHostsFile: hashed });
    await byHash.run(argvOf(["true"]));

    const fingerprint = (await must(["ssh-keygen", "-lf", join(outside, "known_hosts")])).split(" ")[1];
    await using byFingerprint = hostOf({ knownHostsFile: undefined, hostKeyFingerprints: [fingerprint] });
    await byFingerprint.run(argvOf(["true"]));
    const wrong = `SHA256:${"A".repeat(43)}`;
    const state = await downOf({ knownHostsFile: undefined, hostKeyFingerprints: [wrong] });
    assert.equal(state.why.reason, "HostKeyMismatch");

    const first = join(outside, "first");
    await using onFirstUse = hostOf({ hostKey: "trustOnFirstUse", knownHostsFile: first });
    await onFirstUse.run(argvOf(["true"]));
    assert.equal(readFileSync(first, "utf8"), `${name} ${type} ${key}\n`);
    await using secondUse = hostOf({ knownHostsFile: first });
    await secondUse.run(argvOf(["true"]));
  });

  test("negotiates the known key's type first, so that any of a target's keys is accepted", async () => {
    const [name] = readFileSync(join(rig().outside, "known_hosts"), "utf8").split(" ");
    const file = join(rig().outside, "rsa-known");
    const rsa = await rig().mustInside(["sh", "-c", "cat /etc/../$0", `${rig().dir}/../keys/rsa.pub`]);
    writeFileSync(file, `${name} ${rsa.split(" ").slice(0, 2).join(" ")}\n`);
    await using host = hostOf({ knownHostsFile: file });
    await host.run(argvOf(["true"]));
  });

  test("reports each refused login in one sentence, and shows no secrets, even in the log", async () => {
    const { outside } = rig();
    const other = join(outside, "other");
    await must(["ssh-keygen", "-q", "-t", "ed25519", "-N", "open sesame", "-f", other]);
    const open = join(outside, "open");
    writeFileSync(open, readFileSync(join(outside, "id")), { mode: 0o644 });
    chmodSync(open, 0o644);
    const password = join(outside, "password");
    writeFileSync(password, "wrong-horse-battery\n", { mode: 0o600 });
    const passphrase = join(outside, "passphrase");
    writeFileSync(passphrase, "open-barley\n", { mode: 0o600 });
    const cases: readonly (readonly [Readonly<Record<string, unknown>>, RegExp])[] = [
      [{ user: "nobody-there" }, /refused the login: add the public key of .* or correct user/],
      [{ privateKeyFile: other }, /is not a usable private key .*check it and passphraseFile/],
      [
        { privateKeyFile: other, passphraseFile: passphrase },
        /is not a usable private key .*check it and passphraseFile/,
      ],
      [{ privateKeyFile: open }, /others can read .* \(mode 644\): run chmod 600/],
      [{ privateKeyFile: join(outside, "absent") }, /privateKeyFile cannot be read/],
      [{ privateKeyFile: undefined, passwordFile: password }, /refused the login: correct user or the password/],
      [
        { privateKeyFile: undefined, agentSocket: join(outside, "no-agent") },
        /refused the login: add a key of the agent/,
      ],
    ];
    for (const [fields, sentence] of cases) {
      const { why } = await downOf(fields);
      assert.deepEqual([why.reason, why.code], ["LoginRefused", "permission_denied"]);
      assert.match(why.message, sentence);
    }
    await using withPassphrase = hostOf({ privateKeyFile: other, passphraseFile: passphrase });
    writeFileSync(passphrase, "open sesame\n");
    await rig().mustInside(["sh", "-c", "cat >> /root/.ssh/authorized_keys"], { stdin: readFileSync(`${other}.pub`) });
    await withPassphrase.run(argvOf(["true"]));
    assert.doesNotMatch(logged(), /wrong-horse|open-barley|open sesame|PRIVATE KEY/);
  });

  test("reads another user's key by its group, as for a Secret in a Pod, and refuses one readable by others", async () => {
    const { outside } = rig();
    const given = join(outside, "given");
    writeFileSync(given, readFileSync(join(outside, "id")), { mode: 0o440 });
    const { why } = await downOf({ privateKeyFile: given });
    assert.match(why.message, /others can read .* \(mode 440\)/);
    chownSync(given, 65_532, 0);
    await using host = hostOf({ privateKeyFile: given });
    await host.run(argvOf(["true"]));
    chmodSync(given, 0o444);
    assert.match((await downOf({ privateKeyFile: given })).why.message, /others can read .* \(mode 444\)/);
  });

  test("reports a port where nothing listens, and an unknown host name", async () => {
    const nobody = await downOf({ port: 1 });
    assert.match(nobody.why.message, /connection refused: check port, and that sshd runs/);
    assert.equal(nobody.why.reason, "LinkDown");
    assert.match((await downOf({ host: "no-such-machine.invalid" })).why.message, /check/);
  });

  test("uses a rotated key at the next connect", async () => {
    const { outside } = rig();
    const key = join(outside, "rotated");
    await must(["sh", "-c", `ssh-keygen -q -t ed25519 -N '' -f ${key}`]);
    await using host = hostOf({ privateKeyFile: key });
    await assert.rejects(host.run(argvOf(["true"])), { code: "unavailable" });
    assert.equal(host.link.state().kind, "down");
    writeFileSync(key, readFileSync(join(outside, "id")));
    await using after = hostOf({ privateKeyFile: key });
    await after.run(argvOf(["true"]));
  });
});
