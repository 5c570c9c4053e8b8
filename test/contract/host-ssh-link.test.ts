import assert from "node:assert/strict";
import { appendFileSync, chmodSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { LinkState } from "../../providers/ssh/link-state.ts";
import { type SshHost, sshHost } from "../../providers/ssh/host.ts";
import { acquireLock } from "../../src/host/lock.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { createLogger } from "../../src/lib/log.ts";
import { must } from "../harness/processes.ts";
import { waitFor } from "../harness/wait.ts";
import { type SshdRig, startSshdRig } from "./sshd-rig.ts";
import { allOf, within } from "./waiting.ts";

const lines: string[] = [];
const log = createLogger(5, { write: (line: string) => void lines.push(line) });
const never = new AbortController().signal;

describe("the link to a host over SSH", () => {
  let made: SshdRig | undefined;
  before(async () => {
    made = await startSshdRig("link");
  });
  after(async () => made?.[Symbol.asyncDispose]());
  const rig = (): SshdRig => {
    assert.ok(made, "the machine could not be made");
    return made;
  };
  const hostOf = (fields?: Readonly<Record<string, unknown>>): SshHost =>
    sshHost({ config: rig().config(fields), clock: systemClock(), log });
  const isUp = (host: SshHost) =>
    waitFor("the link", () => host.link.state().is === "up", { timeoutMs: 40_000, everyMs: 50 });
  /** The state of a link that cannot come up, once somebody has asked for it. */
  const downOf = async (fields: Readonly<Record<string, unknown>>): Promise<LinkState & { is: "down" }> => {
    await using host = hostOf(fields);
    await assert.rejects(within(host.run(["true"]), 20_000), { code: "unavailable" });
    const state = host.link.state();
    assert.ok(state.is === "down", state.is);
    return state;
  };
  const drop = async (on: boolean) =>
    void (await rig().mustInside(
      on
        ? [
            "sh",
            "-c",
            "nft add table ip cut; nft 'add chain ip cut in { type filter hook input priority 0; }'; nft add rule ip cut in tcp dport 22 drop; nft add rule ip cut in tcp sport 22 drop",
          ]
        : ["nft", "delete", "table", "ip", "cut"],
    ));

  test("nobody outside sees its files", async () => {
    await using host = hostOf();
    await host.fs.apply([{ do: "write", path: `${rig().dir}/own`, data: "" }]);
    assert.equal(existsSync(`${rig().dir}/own`), false);
    assert.equal((await host.run(["hostname"])).stdout, "graftlet-target\n");
  });

  test("a peer that no longer answers is found within 15 s; all calls fail as unavailable; what held a lock there is ended on return", async () => {
    await using host = hostOf();
    await host.fs.apply([{ do: "write", path: `${rig().dir}/lock`, data: "" }]);
    await using _lock = await acquireLock(host, `${rig().dir}/lock`, never);
    await using listener = await host.listen?.({ host: "127.0.0.1", port: 0 }, (far) => far.end("back"));
    const hanging = assert.rejects(host.run(["sleep", "120"], { timeoutMs: 120_000 }), { code: "unavailable" });
    await using file = await host.fs.open("/etc/passwd");
    const states: string[] = [];
    host.link.onChange(({ is }) => states.push(is));
    await drop(true);
    const cutAt = performance.now();
    await hanging;
    assert.ok(performance.now() - cutAt < 15_000, `found after ${performance.now() - cutAt} ms`);
    const state = host.link.state();
    assert.ok(state.is === "down" && state.why.reason === "LinkDown", JSON.stringify(state));
    await assert.rejects(within(host.fs.stat("/"), 500), { code: "unavailable" });
    await assert.rejects(within(file.read(0, 10), 500), { code: "unavailable" });
    await drop(false);
    await isUp(host);
    assert.equal((await host.run(["echo", "again"])).stdout, "again\n");
    await using _again = await waitFor("the lock to be free", () => acquireLock(host, `${rig().dir}/lock`, never));
    assert.ok(listener);
    const heard = async () => allOf(await host.dial(listener.address));
    assert.equal(await waitFor("the listener to be back", heard), "back");
    assert.deepEqual(states.slice(0, 2), ["down", "connecting"]);
  });

  test("sshd killed: unavailable, then as before; callers that wait share one reconnect", async () => {
    await using host = hostOf();
    await host.run(["true"]);
    await rig().killSshd();
    await waitFor("the loss", () => host.link.state().is !== "up", { everyMs: 10 });
    await assert.rejects(host.run(["true"]), { code: "unavailable" });
    await rig().startSshd();
    await isUp(host);
    const before = Number((await rig().mustInside(["sh", "-c", "pgrep -c -f 'sshd: root'"])).trim());
    await Promise.all(Array.from({ length: 20 }, () => host.run(["true"])));
    const after = Number((await rig().mustInside(["sh", "-c", "pgrep -c -f 'sshd: root'"])).trim());
    assert.equal(after, before);
  });

  for (const sessions of [10, 2])
    test(`with MaxSessions ${sessions}, more commands than one connection takes run on further ones, and one that hangs holds up no other`, async () => {
      await rig().startSshd([`MaxSessions ${sessions}`]);
      await using host = hostOf();
      await using running = new AsyncDisposableStack();
      const hung = assert.rejects(host.run(["sleep", "60"], { timeoutMs: 3000 }), { code: "deadline_exceeded" });
      const count = sessions === 10 ? 9 : 1;
      for (let index = 0; index < count; index++) running.use(await within(host.spawn(["sleep", "60"]), 10_000));
      assert.equal((await within(host.run(["echo", "free"]))).stdout, "free\n");
      await hung;
      const state = host.link.state();
      assert.ok(state.is === "up" && state.connections > 1, JSON.stringify(state));
      const left = async () => (await rig().inside(["pgrep", "-c", "-x", "sleep"])).stdout.trim() === String(count + 1);
      await waitFor("the late command to be killed", left, { timeoutMs: 5000 });
    });

  test("with no session allowed at all the sentence says so", async () => {
    await rig().startSshd(["MaxSessions 0"]);
    await using host = hostOf();
    await assert.rejects(host.run(["true"]), { code: "failed_precondition", message: /MaxSessions/ });
    await rig().startSshd();
  });

  test("a changed host key stops everything, and is not tried in a storm", async () => {
    const file = join(rig().outside, "changed");
    const [name] = readFileSync(join(rig().outside, "known_hosts"), "utf8").split(" ");
    const other = (
      await must(["sh", "-c", `ssh-keygen -q -t ed25519 -N '' -f ${file}-key && cat ${file}-key.pub`])
    ).split(" ");
    writeFileSync(file, `${name} ${other[0]} ${other[1]}\n`);
    const state = await downOf({ knownHostsFile: file });
    assert.equal(state.why.reason, "HostKeyMismatch");
    assert.match(state.why.message, /showed the ssh-ed25519 key SHA256:.*which is not the one in/);
    assert.ok(state.nextTryAt - Date.now() > 200_000);
  });

  test("a host key that is not known is refused; hashed names, fingerprints and first use are as good as plain names", async () => {
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
    await byHash.run(["true"]);

    const fingerprint = (await must(["ssh-keygen", "-lf", join(outside, "known_hosts")])).split(" ")[1];
    await using byFingerprint = hostOf({ knownHostsFile: undefined, hostKeyFingerprints: [fingerprint] });
    await byFingerprint.run(["true"]);
    const wrong = `SHA256:${"A".repeat(43)}`;
    const state = await downOf({ knownHostsFile: undefined, hostKeyFingerprints: [wrong] });
    assert.equal(state.why.reason, "HostKeyMismatch");

    const first = join(outside, "first");
    await using onFirstUse = hostOf({ hostKey: "trustOnFirstUse", knownHostsFile: first });
    await onFirstUse.run(["true"]);
    assert.equal(readFileSync(first, "utf8"), `${name} ${type} ${key}\n`);
    await using secondUse = hostOf({ knownHostsFile: first });
    await secondUse.run(["true"]);
  });

  test("only the known key's type is asked for first, so that a target with several keys is known by any of them", async () => {
    const [name] = readFileSync(join(rig().outside, "known_hosts"), "utf8").split(" ");
    const file = join(rig().outside, "rsa-known");
    const rsa = await rig().mustInside(["sh", "-c", "cat /etc/../$0", `${rig().dir}/../keys/rsa.pub`]);
    writeFileSync(file, `${name} ${rsa.split(" ").slice(0, 2).join(" ")}\n`);
    await using host = hostOf({ knownHostsFile: file });
    await host.run(["true"]);
  });

  test("a login that is refused: one sentence each, no secret in it or in the log", async () => {
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
      [{ privateKeyFile: other }, /is no key that can be used .*check it and passphraseFile/],
      [
        { privateKeyFile: other, passphraseFile: passphrase },
        /is no key that can be used .*check it and passphraseFile/,
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
    await withPassphrase.run(["true"]);
    assert.doesNotMatch(lines.join(""), /wrong-horse|open-barley|open sesame|PRIVATE KEY/);
  });

  test("a port where nobody listens, a name that is none", async () => {
    const nobody = await downOf({ port: 1 });
    assert.match(nobody.why.message, /nobody listens there: check port, and that sshd runs/);
    assert.equal(nobody.why.reason, "LinkDown");
    assert.match((await downOf({ host: "no-such-machine.invalid" })).why.message, /check/);
  });

  test("a user who may do little is told what is missing, and does the rest", async () => {
    await using host = hostOf({ user: "plain" });
    const { as, missing } = await host.privileges(never);
    assert.equal(as, "user");
    assert.match(missing.join("\n"), /User plain of the target is not root.*plain ALL=\(ALL\) NOPASSWD: ALL/);
    assert.equal((await host.run(["id", "-un"])).stdout, "plain\n");
    await assert.rejects(host.fs.readFile("/etc/shadow"), { code: "permission_denied" });
    await assert.rejects(host.fs.list("/root"), { code: "permission_denied" });
    await assert.rejects(host.fs.apply([{ do: "mkdir", path: "/etc/x" }]), { code: "permission_denied" });
    await assert.rejects(host.fs.apply([{ do: "remove", path: "/etc/passwd" }]), { code: "permission_denied" });
    await using sudo = hostOf({ user: "helper", sudo: "never" });
    assert.match((await sudo.privileges(never)).missing.join("\n"), /set sudo: auto/);
  });

  test("what a user with sudo reaches as root: files, commands, sockets", async () => {
    await using host = hostOf({ user: "helper" });
    assert.deepEqual((await host.privileges(never)).missing, []);
    assert.equal((await host.run(["id", "-un"])).stdout, "root\n");
    await using shadow = await host.fs.open("/etc/shadow");
    assert.ok((await shadow.read(0, 10)).length > 0);
    const serve =
      "import os,socket,sys\ns=socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); os.chmod(sys.argv[1],0o600); s.listen(); print(1,flush=True)\nwhile 1: c=s.accept()[0]; c.sendall(b'root:'+c.recv(99)); c.close()";
    await using server = await host.spawn(["python3", "-c", serve, "/run/only-root"]);
    await within(new Promise((resolve) => server.stdout.once("data", resolve)));
    const connection = await host.dial({ unix: "/run/only-root" });
    connection.write("hi");
    assert.equal(await within(allOf(connection)), "root:hi");
  });

  test("hostile names, arguments, contents and input stay what they are", async () => {
    await using host = hostOf();
    const hostile = [
      "'; touch pwned; '",
      '"$(touch pwned)"',
      "`touch pwned`",
      "a\nb",
      "-rf",
      "--",
      "*",
      "?",
      "[a]",
      "~",
      "$HOME",
      "\\",
      "\\n",
      "%s%n",
      "é ü 漢字 🎉",
      " lead and trail ",
      "tab\there",
      "a'b",
      "}",
      "#",
      "!!",
      "\u0001\u001b[31m",
      "$'\\x41'",
      "&& false",
      "x\n",
    ];
    const dir = `${rig().dir}/hostile ' $dir`;
    await host.fs.apply([{ do: "mkdir", path: dir }]);
    for (const name of hostile) {
      const path = `${dir}/${name}`;
      const file = `${path}/${name}`;
      await host.fs.apply([
        { do: "mkdir", path, mode: 0o700 },
        { do: "write", path: file, data: name },
        { do: "symlink", path: `${path}/link`, target: name },
        { do: "symlink", path: `${path}/link`, target: name },
        { do: "rename", from: file, to: `${file}.moved` },
        { do: "chmod", path: `${file}.moved`, mode: 0o600 },
        { do: "chown", path: `${file}.moved`, uid: 7, gid: 8 },
      ]);
      assert.equal((await host.fs.readFile(`${file}.moved`)).toString(), name);
      assert.equal(await host.fs.readlink(`${path}/link`), name);
      assert.deepEqual((await host.fs.list(path)).map((each) => each.name).sort(), ["link", `${name}.moved`].sort());
      assert.equal((await host.fs.lstat(`${file}.moved`)).uid, 7);
      await using opened = await host.fs.open(`${file}.moved`, { noFollow: true });
      assert.equal((await opened.read(0, 99)).toString(), name);
      assert.equal((await host.run(["printf", "%s|", name, name])).stdout, `${name}|${name}|`);
      assert.equal((await host.run(["cat"], { stdin: name })).stdout, name);
      await using spawned = await host.spawn(["printf", "%s", name]);
      assert.equal(await allOf(spawned.stdout), name);
    }
    assert.deepEqual((await host.fs.list(dir)).map(({ name }) => name).sort(), [...hostile].sort());
    await host.fs.apply(hostile.map((name) => ({ do: "remove", path: `${dir}/${name}`, recursive: true })));
    assert.deepEqual(await host.fs.list(dir), []);
    assert.equal((await rig().inside(["test", "-e", "/pwned"])).code, 1);
    await assert.rejects(host.run(["echo", "a\0b"]), { code: "invalid_argument" });
    const bytes = Buffer.from(Array.from({ length: 1024 }, (_, index) => index % 256));
    await host.fs.apply([{ do: "write", path: `${dir}/bytes`, data: bytes }]);
    assert.ok((await host.fs.readFile(`${dir}/bytes`)).equals(bytes));
  });

  test("large contents, outputs and many changes go through whole", async () => {
    await using host = hostOf();
    const dir = `${rig().dir}/large`;
    const data = Buffer.alloc(3_000_000, Buffer.from(Array.from({ length: 251 }, (_, index) => index)));
    await host.fs.apply([
      { do: "mkdir", path: dir },
      { do: "write", path: `${dir}/f`, data, mode: 0o600 },
    ]);
    assert.ok((await host.fs.readFile(`${dir}/f`)).equals(data));
    await using file = await host.fs.open(`${dir}/f`);
    const parts: Buffer[] = [];
    for (let at = 0; at < data.length; ) {
      const part = await file.read(at, data.length);
      assert.ok(part.length > 0);
      parts.push(part);
      at += part.length;
    }
    assert.ok(Buffer.concat(parts).equals(data));
    await host.fs.apply(
      Array.from({ length: 2000 }, (_, index) => ({
        do: "write",
        path: `${dir}/file-with-a-long-name-${index}`,
        data: "x",
      })),
    );
    assert.equal((await host.fs.list(dir)).length, 2001);
    const failing = Array.from(
      { length: 2000 },
      (_, index) => ({ do: "write", path: `${dir}/second-with-a-long-name-${index}`, data: "x" }) as const,
    );
    await assert.rejects(
      host.fs.apply([...failing.slice(0, 999), { do: "chmod", path: `${dir}/none`, mode: 0 }, ...failing.slice(999)]),
      { code: "not_found", message: /none/ },
    );
    assert.equal((await host.fs.list(dir)).length, 3000);
    await host.fs.apply([{ do: "remove", path: dir, recursive: true }]);
  });

  test("a full file system is resource_exhausted, a read-only one permission_denied", async () => {
    await using host = hostOf();
    const dir = `${rig().dir}/full`;
    await host.fs.apply([{ do: "mkdir", path: dir }]);
    await rig().mustInside(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", dir]);
    const write = (data: Buffer) => host.fs.apply([{ do: "write", path: `${dir}/f`, data }]);
    await assert.rejects(write(Buffer.alloc(1_000_000)), { code: "resource_exhausted" });
    await assert.rejects(write(Buffer.alloc(80_000, "x")), { code: "resource_exhausted" });
    await rig().mustInside(["mount", "-o", "remount,ro", dir]);
    await assert.rejects(write(Buffer.alloc(10)), { code: "permission_denied" });
  });

  test("round trips: one for a set of changes, for a file and for a command, whatever the distance", async (t) => {
    await using host = hostOf();
    await host.run(["true"]);
    const dir = `${rig().dir}/trips`;
    const changes = Array.from(
      { length: 40 },
      (_, index) => ({ do: "write", path: `${dir}/${index}`, data: `data ${index}` }) as const,
    );
    const work: readonly (readonly [string, number, () => Promise<unknown>])[] = [
      ["apply of 41 changes", 1, () => host.fs.apply([{ do: "mkdir", path: dir }, ...changes])],
      ["readFile", 1, () => host.fs.readFile("/etc/passwd")],
      ["stat", 1, () => host.fs.stat("/etc/passwd")],
      ["list", 1, () => host.fs.list(dir)],
      ["run", 1, () => host.run(["true"])],
      ["dial", 1, () => host.dial({ host: "127.0.0.1", port: 22 })],
      ["open and close", 5, async () => (await host.fs.open("/etc/passwd"))[Symbol.asyncDispose]()],
      ["spawn", 4, async () => (await host.spawn(["true"])).exited],
    ];
    await host.fs.readlink("/proc/self/exe");
    for (const delayMs of [0, 20, 100]) {
      rig().delay(delayMs / 2);
      for (const [name, most, make] of work) {
        const [trips, at] = [host.link.roundTrips(), performance.now()];
        await make();
        const took = performance.now() - at;
        const counted = host.link.roundTrips() - trips;
        t.diagnostic(`${delayMs} ms away: ${name} took ${took.toFixed(1)} ms, ${counted} round trips`);
        assert.ok(counted >= 1 && counted <= most, `${name} took ${counted} round trips`);
        assert.ok(took < (most + 1) * delayMs + 500, `${name} took ${took} ms at ${delayMs} ms`);
      }
    }
    rig().delay(0);
  });

  test("a slow reader holds up no other, and a connection holds no more than a window of what it does not read", async () => {
    await using host = hostOf();
    await using flood = await host.spawn(["sh", "-c", "yes flood"]);
    await waitFor("the flood", () => flood.stdout.readableLength > 0 || undefined, { everyMs: 10 });
    assert.equal((await within(host.run(["echo", "through"]))).stdout, "through\n");
    const before = process.memoryUsage().rss;
    for (let index = 0; index < 20; index++) await host.run(["true"]);
    assert.ok(process.memoryUsage().rss - before < 30 * 2 ** 20);
  });

  test("a rotated key is found at the next connect", async () => {
    const { outside } = rig();
    const key = join(outside, "rotated");
    await must(["sh", "-c", `ssh-keygen -q -t ed25519 -N '' -f ${key}`]);
    await using host = hostOf({ privateKeyFile: key });
    await assert.rejects(host.run(["true"]), { code: "unavailable" });
    assert.equal(host.link.state().is, "down");
    writeFileSync(key, readFileSync(join(outside, "id")));
    await using after = hostOf({ privateKeyFile: key });
    await after.run(["true"]);
    appendFileSync(key, "");
  });
});
