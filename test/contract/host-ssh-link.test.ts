import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { describe, test } from "node:test";
import { acquireLocks } from "../../src/host/lock.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { codeOf } from "../../src/lib/errors.ts";
import { never } from "../fakes/signals.ts";
import { waitFor } from "../harness/wait.ts";
import { sshBench } from "./ssh-bench.ts";
import { allOf, within } from "./waiting.ts";
import { argvOf } from "../harness/argv.ts";

describe("the SSH link to a host", () => {
  const { rig, hostOf, isUp } = sshBench("link");
  /** All that sshd says and hears is lost, until it is not. */
  const drop = async (on: boolean) => {
    const rules = on
      ? ["iptables -A INPUT -p tcp --dport 22 -j DROP", "iptables -A INPUT -p tcp --sport 22 -j DROP"]
      : ["iptables -F INPUT"];
    await rig().mustInside(["sh", "-ec", rules.join("\n")]);
  };

  test("keeps the link's files private to its user", async () => {
    await using host = hostOf();
    await host.fs.apply([{ kind: "write", path: `${rig().dir}/own`, data: "" }]);
    assert.equal(existsSync(`${rig().dir}/own`), false);
    assert.equal((await host.run(argvOf(["hostname"]))).stdout, "graftlet-target\n");
  });

  test("detects an unresponsive peer within 15 s: calls fail as unavailable, and stale locks are freed on return", async () => {
    await using host = hostOf();
    await host.fs.apply([{ kind: "write", path: `${rig().dir}/lock`, data: "" }]);
    await using _lock = await acquireLocks(host, [{ path: `${rig().dir}/lock` }], never);
    await using listener = await host.listen?.({ host: "127.0.0.1", port: 0 }, (far) => far.end("back"));
    const hanging = assert.rejects(host.run(argvOf(["sleep", "120"]), { timeoutMs: 120_000 }), { code: "unavailable" });
    await using file = await host.fs.open("/etc/passwd");
    const states: string[] = [];
    host.link.onChange(({ kind }) => states.push(kind));
    await drop(true);
    const cutAt = performance.now();
    await hanging;
    assert.ok(performance.now() - cutAt < 15_000, `found after ${performance.now() - cutAt} ms`);
    const state = host.link.state();
    assert.ok(state.kind === "down" && state.why.reason === "LinkDown", JSON.stringify(state));
    await assert.rejects(within(host.fs.stat("/"), 3000), { code: "unavailable" });
    await assert.rejects(within(file.read(0, 10), 3000), { code: "unavailable" });
    await drop(false);
    await isUp(host);
    assert.equal((await host.run(argvOf(["echo", "again"]))).stdout, "again\n");
    await using _again = await waitFor("the lock to be free", () =>
      acquireLocks(host, [{ path: `${rig().dir}/lock` }], never),
    );
    assert.ok(listener);
    await waitFor("the listener to be back", async () => (await allOf(await host.dial(listener.address))) === "back");
    assert.deepEqual(states.slice(0, 2), ["down", "connecting"]);
  });

  test("takes the link down with the reason LimitExceeded if the target exceeds its budget", async () => {
    await using host = hostOf();
    await host.run(argvOf(["true"]));
    const gone = waitFor("the link to be down", () => {
      const state = host.link.state();
      return state.kind === "down" ? state.why : undefined;
    });
    assert.throws(() => host.budget?.spend(2 ** 30), { code: "resource_exhausted" });
    const { reason, message } = await gone;
    assert.equal(reason, "LimitExceeded");
    assert.match(message, /^the target sends more data than graftlet accepts for one node/);
    await assert.rejects(host.run(argvOf(["true"])), { code: "unavailable", message: /sends more data/ });
  });

  test("calls fail as unavailable while sshd is down, and all waiting callers share one reconnection", async () => {
    await using host = hostOf();
    await host.run(argvOf(["true"]));
    await rig().killSshd();
    await waitFor("the loss", () => host.link.state().kind !== "up", { everyMs: 10 });
    await assert.rejects(host.run(argvOf(["true"])), { code: "unavailable" });
    await rig().startSshd();
    await isUp(host);
    const before = Number((await rig().mustInside(["sh", "-c", "pgrep -c -f 'sshd(-session)?: root'"])).trim());
    await Promise.all(Array.from({ length: 5 }, () => host.run(argvOf(["true"]))));
    const after = Number((await rig().mustInside(["sh", "-c", "pgrep -c -f 'sshd(-session)?: root'"])).trim());
    assert.equal(after, before);
  });

  for (const sessions of [10, 2])
    test(`with MaxSessions ${sessions}, opens another connection for further commands while one hangs`, async () => {
      await rig().startSshd([`MaxSessions ${sessions}`]);
      await using host = hostOf();
      await using running = new AsyncDisposableStack();
      const hung = assert.rejects(host.run(argvOf(["sleep", "60"]), { timeoutMs: 3000 }), {
        code: "deadline_exceeded",
      });
      const count = sessions === 10 ? 9 : 1;
      for (let index = 0; index < count; index++) running.use(await within(host.spawn(argvOf(["sleep", "60"]))));
      assert.equal((await within(host.run(argvOf(["echo", "free"])))).stdout, "free\n");
      await hung;
      const state = host.link.state();
      assert.ok(state.kind === "up" && state.connections > 1, JSON.stringify(state));
      const left = async () => (await rig().inside(["pgrep", "-c", "-x", "sleep"])).stdout.trim() === String(count + 1);
      await waitFor("the late command to be killed", left);
    });

  test("reports the missing privileges of a restricted user, and supports everything that needs none of them", async () => {
    await using host = hostOf({ user: "plain" });
    const { runAs, missing } = await host.privileges(never);
    assert.equal(runAs, "user");
    assert.match(missing.join("\n"), /User plain on the target is not root.*plain ALL=\(ALL\) NOPASSWD: ALL/);
    assert.equal((await host.run(argvOf(["id", "-un"]))).stdout, "plain\n");
    await assert.rejects(host.fs.readFile("/etc/shadow"), { code: "permission_denied" });
    await assert.rejects(host.fs.list("/root"), { code: "permission_denied" });
    await assert.rejects(host.fs.apply([{ kind: "mkdir", path: "/etc/x" }]), { code: "permission_denied" });
    await assert.rejects(host.fs.apply([{ kind: "remove", path: "/etc/passwd" }]), { code: "permission_denied" });
    await using sudo = hostOf({ user: "helper", sudo: "never" });
    assert.match((await sudo.privileges(never)).missing.join("\n"), /set sudo: auto/);
  });

  test("uses sudo for files, commands and sockets", async () => {
    await using host = hostOf({ user: "helper" });
    assert.deepEqual((await host.privileges(never)).missing, []);
    assert.equal((await host.run(argvOf(["id", "-un"]))).stdout, "root\n");
    await using shadow = await host.fs.open("/etc/shadow");
    assert.ok((await shadow.read(0, 10)).length > 0);
    const serve = `use IO::Socket::UNIX; $| = 1; my $l = IO::Socket::UNIX->new(Local => $ARGV[0], Listen => 1) or die;
      chmod 0600, $ARGV[0]; print "ready"; while (my $c = $l->accept) { sysread($c, my $b, 99); syswrite($c, "root:$b"); close $c }`;
    await using server = await host.spawn(argvOf(["perl", "-e", serve, "/run/only-root"]));
    await within(new Promise((resolve) => server.stdout.once("data", resolve)));
    const connection = await host.dial({ unix: "/run/only-root" });
    connection.write("hi");
    assert.equal(await within(allOf(connection)), "root:hi");
  });

  test("reads all data that the peer sent before it closed the connection, even if more is written afterwards", async () => {
    await using host = hostOf();
    const bytes = 1_500_000;
    const socket = `${rig().dir}/brief`;
    const serve = `use IO::Socket::UNIX; $| = 1; my $l = IO::Socket::UNIX->new(Local => $ARGV[0], Listen => 1) or die;
      print "ready"; my $c = $l->accept; print $c "x" x ${bytes}; close $c; sleep 60`;
    await using server = await host.spawn(argvOf(["perl", "-e", serve, socket]));
    await within(new Promise((resolve) => server.stdout.once("data", resolve)));
    const connection = await host.dial({ unix: socket });
    const refused = new Promise<Error>((resolve) => connection.once("error", resolve));
    let got = 0;
    for await (const part of connection.iterator({ destroyOnReturn: false })) {
      got += (part as Buffer).length;
      connection.write("ping");
      await systemClock().sleep(5);
    }
    assert.equal(got, bytes);
    connection.write("late");
    assert.equal(codeOf(await within(refused)), "unavailable");
  });

  test("connects through a program on the target if sshd forbids forwarding, with half-close", async () => {
    const socket = `${rig().dir}/echo`;
    await using sockets = hostOf();
    await using server = await sockets.spawn(argvOf(["socat", `UNIX-LISTEN:${socket},fork`, "SYSTEM:echo got $(cat)"]));
    await using port = await sockets.spawn(
      argvOf(["socat", "TCP-LISTEN:7000,bind=127.0.0.1,fork", `UNIX-CONNECT:${socket}`]),
    );
    const engine = "/run/docker.sock";
    const pong = `use IO::Socket::UNIX; my $l = IO::Socket::UNIX->new(Local => $ARGV[0], Listen => 9) or die; chmod 0600, $ARGV[0];
      while (my $c = $l->accept) { my $b = ""; while ($b !~ /\\r\\n\\r\\n/) { sysread($c, $b, 999, length $b) or last }
        syswrite($c, "HTTP/1.1 200 OK\\r\\nApi-Version: 1.43\\r\\nContent-Length: 0\\r\\nConnection: close\\r\\n\\r\\n"); close $c }`;
    await using _engine = await sockets.spawn(argvOf(["perl", "-e", pong, engine]));
    assert.notEqual(server.pid, port.pid);
    await using _speaker = await sockets.spawn(
      argvOf(["socat", "TCP-LISTEN:7002,bind=127.0.0.1,fork", "SYSTEM:echo all"]),
    );
    for (const port of [7000, 7002])
      await waitFor(
        "the sockets",
        async () => (await sockets.run(argvOf(["ss", "-Hltn", `sport = :${port}`]))).stdout !== "",
      );
    await using undo = new AsyncDisposableStack();
    undo.defer(() => rig().startSshd());
    await rig().startSshd(["DisableForwarding yes"]);
    for (const program of ["python3", "perl", "socat", "nc", "ncat"]) {
      await using host = hostOf();
      if ((await host.privileges(never)).relays[0] !== program) continue;
      for (const address of [{ unix: socket }, { host: "127.0.0.1", port: 7000 }]) {
        const connection = await within(host.dial(address));
        connection.end(`from ${program}`);
        assert.equal(await within(allOf(connection)), `got from ${program}\n`);
      }
      // What the server says has an end while the client may still send; OpenBSD's nc and ncat do not tell.
      if (!program.startsWith("nc")) {
        const connection = await within(host.dial({ host: "127.0.0.1", port: 7002 }));
        assert.equal(await within(allOf(connection)), "all\n");
        connection.destroy();
      }
      await assert.rejects(within(host.dial({ unix: `${socket}-none` })), { code: "unavailable" });
      await assert.rejects(within(host.dial({ host: "127.0.0.1", port: 7001 })), { code: "unavailable" });
      await rig().mustInside(["mv", `/usr/bin/${program}`, `/usr/bin/${program}.away`]);
      undo.defer(async () => void (await rig().mustInside(["mv", `/usr/bin/${program}.away`, `/usr/bin/${program}`])));
    }
    await using host = hostOf();
    assert.deepEqual((await host.privileges(never)).relays, ["docker"]);
    await assert.rejects(host.dial({ unix: socket }), { code: "unavailable" });
    const asking = await within(host.dial({ unix: engine }));
    asking.write("GET /_ping HTTP/1.1\r\nHost: docker\r\n\r\n");
    assert.match(await within(allOf(asking)), /^HTTP\/1\.1 200 OK\r\n/);
    await using sudo = hostOf({ user: "helper" });
    assert.match(
      (await sudo.privileges(never)).missing.join("\n"),
      /graftlet cannot connect to root's sockets except Docker's/,
    );
    const docker = await within(sudo.dial({ unix: engine }));
    docker.write("GET /_ping HTTP/1.1\r\nHost: docker\r\n\r\n");
    assert.match(await within(allOf(docker)), /^HTTP\/1\.1 200 OK\r\n/);
    const forbidden = { code: "permission_denied", message: /AllowTcpForwarding/ };
    for (const address of [{ unix: `${socket}2` }, { host: "127.0.0.1", port: 0 }])
      await assert.rejects(async () => host.listen?.(address, () => undefined), forbidden);
  });

  test("passes hostile names, arguments, contents and input on unchanged", async () => {
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
    await host.fs.apply([{ kind: "mkdir", path: dir }]);
    for (const name of hostile) {
      const path = `${dir}/${name}`;
      const file = `${path}/${name}`;
      await host.fs.apply([
        { kind: "mkdir", path, mode: 0o700 },
        { kind: "write", path: file, data: name },
        { kind: "symlink", path: `${path}/link`, target: name },
        { kind: "symlink", path: `${path}/link`, target: name },
        { kind: "rename", from: file, to: `${file}.moved` },
        { kind: "chmod", path: `${file}.moved`, mode: 0o600 },
        { kind: "chown", path: `${file}.moved`, uid: 7, gid: 8 },
      ]);
      assert.equal((await host.fs.readFile(`${file}.moved`)).toString(), name);
      assert.equal(await host.fs.readlink(`${path}/link`), name);
      assert.deepEqual((await host.fs.list(path)).map((each) => each.name).sort(), ["link", `${name}.moved`].sort());
      assert.equal((await host.fs.lstat(`${file}.moved`)).uid, 7);
      await using opened = await host.fs.open(`${file}.moved`, { noFollow: true });
      assert.equal((await opened.read(0, 99)).toString(), name);
      assert.equal((await host.run(argvOf(["printf", "%s|", name, name]))).stdout, `${name}|${name}|`);
      assert.equal((await host.run(argvOf(["cat"]), { stdin: name })).stdout, name);
      await using spawned = await host.spawn(argvOf(["printf", "%s", name]));
      assert.equal(await allOf(spawned.stdout), name);
    }
    assert.deepEqual((await host.fs.list(dir)).map(({ name }) => name).sort(), [...hostile].sort());
    await host.fs.apply(hostile.map((name) => ({ kind: "remove", path: `${dir}/${name}`, recursive: true })));
    assert.deepEqual(await host.fs.list(dir), []);
    assert.equal((await rig().inside(["test", "-e", "/pwned"])).code, 1);
    await assert.rejects(host.run(argvOf(["echo", "a\0b"])), { code: "invalid_argument" });
    const bytes = Buffer.from(Array.from({ length: 1024 }, (_, index) => index % 256));
    await host.fs.apply([{ kind: "write", path: `${dir}/bytes`, data: bytes }]);
    assert.ok((await host.fs.readFile(`${dir}/bytes`)).equals(bytes));
  });

  test("transfers large contents, outputs and many changes completely", async () => {
    await using host = hostOf();
    const dir = `${rig().dir}/large`;
    const data = Buffer.alloc(3_000_000, Buffer.from(Array.from({ length: 251 }, (_, index) => index)));
    await host.fs.apply([
      { kind: "mkdir", path: dir },
      { kind: "write", path: `${dir}/f`, data, mode: 0o600 },
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
        kind: "write",
        path: `${dir}/file-with-a-long-name-${index}`,
        data: "x",
      })),
    );
    assert.equal((await host.fs.list(dir)).length, 2001);
    const failing = Array.from(
      { length: 2000 },
      (_, index) => ({ kind: "write", path: `${dir}/second-with-a-long-name-${index}`, data: "x" }) as const,
    );
    await assert.rejects(
      host.fs.apply([...failing.slice(0, 999), { kind: "chmod", path: `${dir}/none`, mode: 0 }, ...failing.slice(999)]),
      { code: "not_found", message: /none/ },
    );
    assert.equal((await host.fs.list(dir)).length, 3000);
    await host.fs.apply([{ kind: "remove", path: dir, recursive: true }]);
  });

  test("reports a full file system as resource_exhausted, a read-only one as permission_denied", async () => {
    await using host = hostOf();
    const dir = `${rig().dir}/full`;
    await host.fs.apply([{ kind: "mkdir", path: dir }]);
    await rig().mustInside(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", dir]);
    const write = (data: Buffer) => host.fs.apply([{ kind: "write", path: `${dir}/f`, data }]);
    await assert.rejects(write(Buffer.alloc(1_000_000)), { code: "resource_exhausted" });
    await assert.rejects(write(Buffer.alloc(80_000, "x")), { code: "resource_exhausted" });
    await rig().mustInside(["mount", "-o", "remount,ro", dir]);
    await assert.rejects(write(Buffer.alloc(10)), { code: "permission_denied" });
  });

  test("applies a set of changes, reads a file or runs a command in one round trip", async (t) => {
    await using host = hostOf();
    await host.run(argvOf(["true"]));
    const dir = `${rig().dir}/trips`;
    const changes = Array.from(
      { length: 40 },
      (_, index) => ({ kind: "write", path: `${dir}/${index}`, data: `data ${index}` }) as const,
    );
    const work: readonly (readonly [string, number, () => Promise<unknown>])[] = [
      ["apply of 41 changes", 1, () => host.fs.apply([{ kind: "mkdir", path: dir }, ...changes])],
      ["readFile", 1, () => host.fs.readFile("/etc/passwd")],
      ["stat", 1, () => host.fs.stat("/etc/passwd")],
      ["list", 1, () => host.fs.list(dir)],
      ["run", 1, () => host.run(argvOf(["true"]))],
      ["dial", 1, () => host.dial({ host: "127.0.0.1", port: 22 })],
      ["open and close", 5, async () => (await host.fs.open("/etc/passwd"))[Symbol.asyncDispose]()],
      ["spawn", 4, async () => (await host.spawn(argvOf(["true"]))).exited],
    ];
    await host.fs.readlink("/proc/self/exe");
    for (const delayMs of [0, 20, 100]) {
      rig().delay(delayMs / 2);
      for (const [name, most, make] of work) {
        // The shortest of some runs: what else the machine does only adds.
        let [took, counted] = [Number.POSITIVE_INFINITY, 0];
        for (let turn = 0; turn < 5 && took >= (most + 1) * delayMs + 500; turn += 1) {
          const [trips, at] = [host.link.roundTrips(), performance.now()];
          await make();
          took = performance.now() - at;
          counted = host.link.roundTrips() - trips;
        }
        t.diagnostic(`${delayMs} ms away: ${name} took ${took.toFixed(1)} ms, ${counted} round trips`);
        assert.ok(counted >= 1 && counted <= most, `${name} took ${counted} round trips`);
        assert.ok(took < (most + 1) * delayMs + 500, `${name} took ${took} ms at ${delayMs} ms`);
      }
    }
    rig().delay(0);
  });

  test("does not let a slow reader block others, and buffers at most a window", async () => {
    await using host = hostOf();
    await using flood = await host.spawn(argvOf(["sh", "-c", "yes flood"]));
    await waitFor("the flood", () => flood.stdout.readableLength > 0 || undefined, { everyMs: 10 });
    assert.equal((await within(host.run(argvOf(["echo", "through"])))).stdout, "through\n");
    const grown: number[] = [];
    for (let turn = 0; turn < 3 && grown.every((bytes) => bytes >= 30 * 2 ** 20); turn++) {
      const before = process.memoryUsage().rss;
      for (let index = 0; index < 20; index++) await host.run(argvOf(["true"]));
      grown.push(process.memoryUsage().rss - before);
    }
    assert.ok(Math.min(...grown) < 30 * 2 ** 20, `grew each time: ${grown.join(", ")} bytes`);
  });
});
