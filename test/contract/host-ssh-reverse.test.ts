import assert from "node:assert/strict";
import type { ChildProcess } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { freePort } from "../harness/ports.ts";
import { identify, must, run, signalProcess, start } from "../harness/processes.ts";
import { waitFor } from "../harness/wait.ts";
import type { SshHost } from "../../providers/ssh/host.ts";
import { sshBench } from "./ssh-bench.ts";
import { argvOf } from "../harness/argv.ts";

describe("a machine with a reverse tunnel", { timeout: 240_000 }, () => {
  const { rig, hostOf, downOf, isUp, logged } = sshBench("reverse");
  const running = new Set<ChildProcess>();
  let port = 0;
  const at = (name: string) => join(rig().outside, name);

  const makeKey = async (name: string, type = "ed25519") => {
    await must(["ssh-keygen", "-q", "-t", type, "-N", "", "-C", name, "-f", at(name)]);
    return readFileSync(at(`${name}.pub`), "utf8");
  };
  /** The node's fields: keys of its machine, in a file of its own. */
  const reverse = (keys: string, fields: Readonly<Record<string, unknown>> = {}) => {
    const file = at(`keys-${createHash("sha256").update(keys).digest("hex").slice(0, 8)}`);
    writeFileSync(file, keys);
    return {
      reverse: { address: "127.0.0.1", port, hostKeyFile: at("listener"), authorizedKeysFile: file, ...fields },
    };
  };
  const begin = (child: ChildProcess) => {
    running.add(child);
    child.once("exit", () => running.delete(child));
    return child;
  };
  const end = async (child: ChildProcess) => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const over = once(child, "exit");
    // Its own child is gone at any moment.
    const inner = identify(within(child) ?? 0);
    if (inner) signalProcess(inner, "SIGKILL");
    child.kill("SIGKILL");
    await over;
  };
  /** Where the machine's connections come from, and a stranger's. */
  const uplinks = { machine: "127.0.0.2", stranger: "127.0.0.3" };
  const uplink = (of: keyof typeof uplinks) => {
    const to = `TCP:127.0.0.1:${port},nodelay,bind=${uplinks[of]}`;
    begin(start(["socat", `UNIX-LISTEN:${at(of)},fork`, to], { stdio: "ignore" }));
  };
  const sshArgv = (key: string, ...more: readonly string[]) => {
    const options = [
      ..."BatchMode=yes ServerAliveInterval=5 ExitOnForwardFailure=yes IdentitiesOnly=yes".split(" "),
      ..."HostKeyAlias=listener GlobalKnownHostsFile=none".split(" "),
      `UserKnownHostsFile=${at("known_listener")}`,
      // The machine's network leads nowhere: a socket in a folder that both see is its uplink.
      `ProxyCommand=socat - UNIX-CONNECT:${at(key === "attacker" ? "stranger" : "machine")}`,
    ];
    return ["ssh", "-F", "none", ...options.flatMap((option) => ["-o", option]), "-i", at(key), ...more];
  };
  /** The machine's own ssh, as its unit runs it. */
  const dialIn = (key: string, ...more: readonly string[]) =>
    begin(
      rig().startInside(sshArgv(key, "-N", ...(more.length > 0 ? more : ["-R", "22:127.0.0.1:22"]), "any@listener")),
    );

  /** The listener is there from the link's first use. */
  const waiting = (host: SshHost, node = "reverse") =>
    assert.rejects(host.run(argvOf(["true"])), new RegExp(`${node} has not (re)?connected`));

  before(async () => {
    port = await freePort();
    const listener = await makeKey("listener");
    writeFileSync(at("known_listener"), `listener ${listener}`);
    uplink("machine");
    uplink("stranger");
  });
  after(async () => {
    for (const child of running) await end(child);
  });

  test("runs commands and transfers 64 MiB both ways", async () => {
    const keys = await makeKey("whole");
    await using host = hostOf(reverse(keys));
    await waiting(host);
    dialIn("whole");
    await isUp(host);
    assert.equal((await host.run(argvOf(["hostname"]))).stdout, "graftlet-target\n");
    const data = randomBytes(64 * 2 ** 20);
    const cat = await host.spawn(argvOf(["cat"]));
    cat.stdin.end(data);
    const [back, digest] = [createHash("sha256"), createHash("sha256").update(data).digest("hex")];
    for await (const chunk of cat.stdout) back.update(chunk as Buffer);
    assert.equal(back.digest("hex"), digest);
    await host.fs.apply([{ kind: "write", path: `${rig().dir}/by-reverse`, data: "x" }]);
    assert.equal(String(await host.fs.readFile(`${rig().dir}/by-reverse`)), "x");
  });

  for (const type of ["rsa", "ecdsa"])
    test(`accepts a key of type ${type}, and a port chosen by the listener`, async () => {
      const keys = await makeKey(`by-${type}`, type);
      await using host = hostOf(reverse(`# the machine's\n\n${keys}`));
      await waiting(host);
      dialIn(`by-${type}`, "-R", "0:127.0.0.1:22");
      await isUp(host);
      assert.equal((await host.run(argvOf(["hostname"]))).stdout, "graftlet-target\n");
    });

  test("reports a missing tunnel in one sentence, and uses the machine a second or two after it connects", async () => {
    const keys = await makeKey("later");
    await using host = hostOf(reverse(keys));
    await assert.rejects(host.run(argvOf(["true"])), /reverse has not connected yet: check that its ssh -N -R runs/);
    const state = host.link.state();
    assert.ok(state.kind === "down" && state.why.reason === "ReverseTunnelDown");
    dialIn("later");
    await waitFor("the link", () => host.link.state().kind === "up", { timeoutMs: 3_000, everyMs: 20 });
  });

  test("accepts a reconnected ssh client, and a second one while the first is stuck", async () => {
    const keys = await makeKey("again");
    await using host = hostOf(reverse(keys));
    await waiting(host);
    const first = dialIn("again");
    await isUp(host);
    await end(first);
    await waitFor("the loss", () => host.link.state().kind !== "up", { timeoutMs: 5_000, everyMs: 20 });
    const second = dialIn("again");
    await waitFor("the link", () => host.link.state().kind === "up", { timeoutMs: 5_000, everyMs: 20 });
    // Two uplinks: the newer one carries what is opened from now on, the older one goes on.
    const third = dialIn("again");
    await waitFor("both", () => (logged().match(/accepted reverse connection/g) ?? []).length >= 4, { everyMs: 20 });
    await end(third);
    assert.equal((await host.run(argvOf(["hostname"]))).stdout, "graftlet-target\n");
    const fourth = dialIn("again");
    await waitFor("its arrival", () => (logged().match(/accepted reverse connection/g) ?? []).length >= 5, {
      everyMs: 20,
    });
    // Stuck, not closed: the link's own keepalive finds it.
    const stuck = identify(within(second) ?? 0);
    assert.ok(stuck && signalProcess(stuck, "SIGSTOP"));
    await waitFor("the loss", () => host.link.state().kind !== "up", { timeoutMs: 20_000, everyMs: 20 });
    await waitFor("the link", () => host.link.state().kind === "up", { timeoutMs: 20_000, everyMs: 20 });
    assert.equal((await host.run(argvOf(["hostname"]))).stdout, "graftlet-target\n");
    await end(fourth);
  });

  test("assigns several machines on one listener to nodes by key, whatever user name they give", async () => {
    const [mine, others] = [await makeKey("mine"), await makeKey("others")];
    await using host = hostOf(reverse(mine), "mine");
    await using other = hostOf(reverse(others), "other");
    await waiting(host, "mine");
    dialIn("mine");
    await isUp(host);
    await waiting(other, "other");
    dialIn("others");
    await isUp(other);
    await host[Symbol.asyncDispose]();
    assert.equal(
      (await other.run(argvOf(["hostname"]))).stdout,
      "graftlet-target\n",
      "the listener outlives one of its nodes",
    );
  });

  test("refuses an impostor: a known name with a different key, or a known key that it does not hold", async () => {
    const keys = await makeKey("known");
    await makeKey("impostor");
    await using host = hostOf(reverse(keys));
    await waiting(host);
    const refused = await rig().inside(sshArgv("impostor", "-N", "-R", "22:127.0.0.1:22", "any@listener"));
    assert.notEqual(refused.code, 0);
    assert.match(refused.stderr, /Permission denied \(publickey\)/);
    // The public half of a known key, with the private half of another.
    writeFileSync(at("stolen"), readFileSync(at("impostor")), { mode: 0o600 });
    writeFileSync(at("stolen.pub"), keys);
    const stolen = await rig().inside(sshArgv("stolen", "-N", "-R", "22:127.0.0.1:22", "any@listener"));
    assert.match(stolen.stderr, /Permission denied \(publickey\)/);
    assert.notEqual(host.link.state().kind, "up");
  });

  test("allows one forward only: no shell, command, file transfer, other destination or second port", async () => {
    const keys = await makeKey("curious");
    await using host = hostOf(reverse(keys));
    await waiting(host);
    const tried = async (...argv: readonly string[]) => rig().inside(["timeout", "20", ...sshArgv("curious", ...argv)]);
    const shell = await tried("any@listener", "id");
    assert.notEqual(shell.code, 0);
    assert.doesNotMatch(shell.stdout, /uid/);
    const out = await tried("-W", `127.0.0.1:${port}`, "any@listener");
    assert.notEqual(out.code, 0);
    assert.match(out.stderr, /administratively prohibited/);
    const subsystem = await tried("-s", "any@listener", "sftp");
    assert.notEqual(subsystem.code, 0);
    const socket = await tried("-N", "-R", `${at("taken")}:127.0.0.1:22`, "any@listener");
    assert.notEqual(socket.code, 0);
    const two = await tried("-N", "-R", "22:127.0.0.1:22", "-R", "23:127.0.0.1:22", "any@listener");
    assert.match(two.stderr, /remote port forwarding failed for listen port 23/);
  });

  test("reports a key shared by two nodes, options before a key, and an invalid listener key, in one sentence each", async () => {
    const keys = await makeKey("twice");
    await using host = hostOf(reverse(keys), "one");
    await using other = hostOf(reverse(`${keys}# another file\n`), "two");
    await waiting(host, "one");
    await waiting(other, "two");
    const refused = await rig().inside(sshArgv("twice", "-N", "-R", "22:127.0.0.1:22", "any@listener"));
    assert.match(refused.stderr, /Permission denied/);
    assert.match(logged(), /its key belongs to several nodes/);
    const why = async (fields: Readonly<Record<string, unknown>>) => (await downOf(fields)).why.message;
    assert.match(await why(reverse(`command="sh" ${keys}`)), /:1: expected a bare public key/);
    writeFileSync(at("nothing"), "no key\n", { mode: 0o600 });
    assert.match(
      await why(reverse(keys, { hostKeyFile: at("nothing") })),
      /another node at .* has a different hostKeyFile/,
    );
    const elsewhere = { port: await freePort() };
    assert.match(await why(reverse(keys, { ...elsewhere, hostKeyFile: at("nothing") })), /is not a usable private key/);
    assert.match(
      await why(reverse(keys, { ...elsewhere, authorizedKeysFile: at("absent") })),
      /authorizedKeysFile cannot be read/,
    );
    const taken = await freePort();
    const holder = begin(start(["socat", `TCP-LISTEN:${taken},bind=127.0.0.1,fork`, "EXEC:true"], { stdio: "ignore" }));
    await waitFor(
      "the port",
      async () => (await run(["sh", "-c", `ss -Hltn sport = :${taken} | grep -q .`])).code === 0,
    );
    assert.match(await why(reverse(keys, { port: taken })), /EADDRINUSE/);
    await end(holder);
  });

  test("keeps the machine connected during ten thousand failing logins, in bounded memory", {
    timeout: 180_000,
  }, async () => {
    const keys = await makeKey("patient");
    await using host = hostOf(reverse(keys));
    await waiting(host);
    await makeKey("attacker");
    const heldBefore = process.memoryUsage().rss;
    const lines = logged().split("\n").length;
    const over = new AbortController();
    let made = 0;
    const attack = async () => {
      while (!over.signal.aborted) {
        made += 1;
        await knock(port);
      }
    };
    // Real logins with a wrong key among them.
    const login = async () => {
      while (!over.signal.aborted) await rig().inside(["timeout", "15", ...sshArgv("attacker", "-N", "any@listener")]);
    };
    // As systemd starts it, from an address of its own.
    const machine = async () => {
      while (!over.signal.aborted) await once(dialIn("patient"), "exit");
    };
    const trying = [login(), login(), machine(), ...Array.from({ length: 50 }, attack)];
    try {
      await waitFor("some attempts", () => made > 500, { everyMs: 10 });
      await waitFor("the link", () => host.link.state().kind === "up", { timeoutMs: 10_000, everyMs: 50 });
      await waitFor("all attempts", () => made > 10_000, { everyMs: 50 });
      assert.equal((await host.run(argvOf(["hostname"]))).stdout, "graftlet-target\n");
    } finally {
      over.abort();
      for (const child of running) if (child.spawnargs.includes(at("patient"))) await end(child);
      await Promise.all(trying);
    }
    const grown = process.memoryUsage().rss - heldBefore;
    assert.ok(grown < 150 * 2 ** 20, `${Math.round(grown / 2 ** 20)} MiB`);
    assert.ok(logged().split("\n").length - lines < 5_000, "no line for each of them");
  });
});

/** The process that nsenter has started in the machine's namespaces. */
function within({ pid }: ChildProcess): number | undefined {
  return Number.parseInt(readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8"), 10) || undefined;
}

/** A connection that says SSH and then nothing, until it is closed or a moment has passed. */
function knock(port: number): Promise<void> {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1", () => void socket.write("SSH-2.0-knock\r\n"));
    socket.setTimeout(200, () => socket.destroy());
    socket.on("error", () => undefined);
    socket.on("data", () => undefined);
    socket.once("close", () => resolve());
  });
}
