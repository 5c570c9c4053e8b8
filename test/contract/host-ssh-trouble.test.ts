import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { type AddressInfo, type Socket, connect, createServer } from "node:net";
import { join } from "node:path";
import { type Duplex, Transform } from "node:stream";
import { describe, test } from "node:test";
import type { LinkReason } from "../../providers/ssh/connection/link-state.ts";
import { acquireLocks } from "../../src/host/lock.ts";
import { never } from "../fakes/signals.ts";
import { waitFor } from "../harness/wait.ts";
import { sshBench } from "./ssh-bench.ts";
import type { SshdRig } from "./sshd-rig.ts";
import { allOf, within } from "./waiting.ts";
import { argvOf } from "../harness/argv.ts";

/** What may be wrong with a target whose login is right. */
interface Trouble {
  readonly name: string;
  readonly sshd?: readonly string[];
  /** Commands on the target that make it so, and that mend it. */
  readonly make?: readonly (readonly string[])[];
  readonly mend?: readonly (readonly string[])[];
  readonly fields?: Readonly<Record<string, unknown>>;
  readonly reason: LinkReason;
  readonly sentence: RegExp;
}

const sftpServer = "/usr/lib/openssh/sftp-server";
const instead = (program: string) => ({
  make: [["mount", "--bind", program, "/bin/sh"]],
  // What the target has not yet ended may hold it.
  mend: [["umount", "--lazy", "/bin/sh"]],
});
const noShell =
  /^the target does not give this user a POSIX shell: \/bin\/sh must be one, and sshd must not force another/;
const hangs =
  /^the login shell of root@127\.0\.0\.1:\d+ does not answer within 15 s: check what its start-up files \(~\/\.bashrc, .*\) or sudo wait for/;

/** A directory with all that a login needs. */
const jail = `
  mount -t tmpfs -o mode=0755 tmpfs /srv
  mkdir -p /srv/jail/usr /srv/jail/proc /srv/jail/dev /srv/jail/etc /srv/jail/root
  cd /srv/jail
  for at in usr proc dev; do mount --rbind /$at $at; done
  for at in bin sbin lib lib64; do ln -s usr/$at $at; done
  cp /etc/passwd /etc/group etc`;

const troubles: readonly Trouble[] = [
  {
    name: "an sshd that allows no sessions",
    sshd: ["MaxSessions 0"],
    reason: "NoSessions",
    sentence: /^the target's sshd allows no sessions: set MaxSessions to 10 in its sshd_config\.$/,
  },
  {
    name: "a login shell that prints into the SFTP session",
    sshd: [`Subsystem sftp ${sftpServer}`],
    make: [["sh", "-c", "echo echo welcome > /root/.bashrc"]],
    mend: [["rm", "/root/.bashrc"]],
    reason: "NoSftp",
    sentence: /make sure that no start-up file of the login shell prints anything/,
  },
  { name: "a /bin/sh that exits at once", ...instead("/bin/false"), reason: "NoPosixShell", sentence: noShell },
  {
    name: "a /bin/sh that only echoes its input",
    ...instead("/bin/cat"),
    reason: "LoginShellTimeout",
    sentence: hangs,
  },
  {
    name: "a user without a shell",
    make: [["usermod", "--shell", "/usr/sbin/nologin", "plain"]],
    mend: [["usermod", "--shell", "/bin/sh", "plain"]],
    fields: { user: "plain" },
    reason: "NoPosixShell",
    sentence: noShell,
  },
  {
    name: "an sshd that forces another command",
    sshd: ["ForceCommand internal-sftp"],
    reason: "NoPosixShell",
    sentence: noShell,
  },
  {
    name: "an sshd that confines the user to a directory without programs",
    sshd: ["ChrootDirectory /srv"],
    reason: "NoPosixShell",
    sentence:
      /or a directory without programs \(ChrootDirectory\)\. Its answer is "\/bin\/bash: No such file or directory"/,
  },
  {
    name: "an sshd that confines the user to a directory with programs",
    sshd: ["ChrootDirectory /srv/jail"],
    make: [["sh", "-ec", jail]],
    mend: [["umount", "-l", "/srv"]],
    reason: "LoginInChroot",
    sentence: /is in a chroot or container, where the runtime does not see the files of pods: remove ChrootDirectory/,
  },
  {
    name: "a login shell whose start-up files hang",
    make: [["sh", "-c", "echo sleep 600 > /root/.bashrc"]],
    mend: [["rm", "/root/.bashrc"]],
    reason: "LoginShellTimeout",
    sentence: hangs,
  },
];

async function mustAll(rig: SshdRig, commands: Trouble["make"] = []): Promise<void> {
  for (const command of commands) await rig.mustInside(command);
}

describe("the SSH link to a faulty target", () => {
  const { rig, hostOf, isUp, logged } = sshBench("trouble");

  for (const { name, sshd, make, mend, fields, reason, sentence } of troubles)
    test(`with ${name}, takes the link down with reason and remedy, retries, and recovers by itself`, async () => {
      await using undo = new AsyncDisposableStack();
      if (sshd) {
        await rig().startSshd(sshd);
        undo.defer(() => rig().startSshd());
      }
      await mustAll(rig(), make);
      let broken = true;
      const repair = async () => {
        if (broken) await mustAll(rig(), mend);
        broken = false;
      };
      undo.defer(repair);
      await using host = hostOf(fields);
      const told = logged().length;
      await assert.rejects(within(host.fs.stat("/"), 40_000), { code: "unavailable" });
      const state = host.link.state();
      assert.ok(state.kind === "down", state.kind);
      assert.equal(state.why.reason, reason);
      assert.match(state.why.message, sentence);
      assert.ok(logged().slice(told).includes(`"reason":"${reason}"`));
      const waits = state.nextTryAt - Date.now();
      assert.ok(waits > 0 && waits < 8_000, `tried again after ${waits} ms`);
      await repair();
      if (sshd) await rig().startSshd();
      await isUp(host);
      assert.equal((await host.fs.stat("/")).kind, "directory");
      await host.fs.fileSystemInfo("/");
    });

  test("releases locks at once and running commands within seconds when the login shell begins to hang", async () => {
    await using undo = new AsyncDisposableStack();
    const host = undo.use(hostOf());
    // No shell is asked for before: to kill anything a new one is needed.
    const lock = `${rig().dir}/lock-hanging`;
    await rig().mustInside(["touch", lock]);
    const held = await acquireLocks(host, [{ path: lock }], never);
    const command = await host.spawn(argvOf(["sleep", "6543"]));
    await rig().mustInside(["sh", "-c", "echo sleep 600 > /root/.bashrc"]);
    undo.defer(async () => void (await rig().inside(["rm", "-f", "/root/.bashrc"])));
    await within(Promise.resolve(held[Symbol.asyncDispose]()), 3_000);
    await rig().mustInside(["flock", "-n", lock, "true"]);
    await within(Promise.resolve(command[Symbol.asyncDispose]()), 10_000);
    await waitFor("that it cannot be killed to be told", () => logged().includes("cannot signal command"));
    await rig().mustInside(["rm", "/root/.bashrc"]);
    await rig().killSshd();
    await rig().startSshd();
    const ended = async () => (await rig().inside(["pgrep", "-f", "^sleep 6543"])).code !== 0;
    await waitFor("it to be ended on the next connection", ended);
  });

  test("reports logins dropped by MaxStartups with a remedy, and recovers", async () => {
    await rig().startSshd(["MaxStartups 1:100:1", "LoginGraceTime 0"]);
    await using undo = new AsyncDisposableStack();
    undo.defer(() => rig().startSshd());
    const { port } = rig().config();
    const knocking = connect({ host: "127.0.0.1", port });
    undo.defer(() => void knocking.destroy());
    await within(once(knocking, "data"));
    await using host = hostOf();
    await assert.rejects(within(host.fs.stat("/")), { code: "unavailable" });
    const state = host.link.state();
    assert.ok(state.kind === "down", state.kind);
    assert.equal(state.why.reason, "ConnectionRejected");
    assert.match(state.why.message, /closed the connection before the login.*\(MaxStartups\)/);
    knocking.destroy();
    await isUp(host);
  });

  for (const { name, answer, reason, sentence } of [
    {
      name: "a web server",
      answer: (socket: Socket) => void socket.end("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"),
      reason: "ConnectionRejected",
      sentence:
        /closed the connection before the login, saying "HTTP\/1\.1 400 Bad Request": .*check that an sshd listens/,
    },
    {
      name: "a server that closes the connection",
      answer: (socket: Socket) => void socket.destroy(),
      reason: "ConnectionRejected",
      sentence: /closed the connection before the login: .*check that an sshd listens on that port\.$/,
    },
    {
      name: "a server that sends nothing",
      answer: () => undefined,
      reason: "LinkDown",
      sentence: /cannot be reached \(Timed out .*\): no answer: check host, that the machine is up/,
    },
  ])
    test(`reports why the link is down if the port belongs to ${name}`, async () => {
      const server = createServer((socket) => {
        socket.on("error", () => undefined);
        answer(socket);
      });
      server.listen(0, "127.0.0.1");
      await once(server, "listening");
      await using _closing = { [Symbol.asyncDispose]: async () => void server.close() };
      await using host = hostOf({ port: (server.address() as AddressInfo).port });
      await assert.rejects(within(host.fs.stat("/"), 40_000), { code: "unavailable" });
      const state = host.link.state();
      assert.ok(state.kind === "down", state.kind);
      assert.equal(state.why.reason, reason);
      assert.match(state.why.message, sentence);
    });

  for (const sessions of [1, 2, 3])
    test(`MaxSessions ${sessions} is enough for all sessions that a node keeps open, and for commands`, async () => {
      await rig().startSshd([`MaxSessions ${sessions}`]);
      await using _undo = { [Symbol.asyncDispose]: () => rig().startSshd() };
      await using host = hostOf();
      const lock = `${rig().dir}/lock-${sessions}`;
      await host.fs.apply([{ kind: "write", path: lock, data: "" }]);
      await using _lock = await within(acquireLocks(host, [{ path: lock }], never));
      await using standing = new AsyncDisposableStack();
      for (let index = 0; index < 5; index++) standing.use(await within(host.spawn(argvOf(["sleep", "60"]))));
      await within(host.fs.fileSystemInfo("/"));
      const answers = await within(
        Promise.all(Array.from({ length: 10 }, (_, index) => host.run(argvOf(["echo", String(index)])))),
      );
      assert.deepEqual(
        answers.map(({ stdout }) => stdout),
        Array.from({ length: 10 }, (_, index) => `${index}\n`),
      );
      await within(
        assert.rejects(host.run(argvOf(["sleep", "61"]), { timeoutMs: 500 }), { code: "deadline_exceeded" }),
      );
      const left = async () => (await rig().inside(["pgrep", "-f", "^sleep 61"])).code !== 0;
      await waitFor("the late command to be killed", left);
    });

  for (const sessions of [10, 2])
    test(`MaxSessions ${sessions}: runs the node's own commands at once while users hold all their sessions`, async () => {
      await rig().startSshd([`MaxSessions ${sessions}`]);
      await using _undo = { [Symbol.asyncDispose]: () => rig().startSshd() };
      await using host = hostOf();
      assert.ok(host.forUsers);
      await host.run(argvOf(["true"]));
      const { spawn } = host.forUsers;
      const stop = new AbortController();
      const asked = Array.from({ length: 40 }, () => spawn(argvOf(["sleep", "60"]), stop.signal));
      const told = () => logged().includes("user session limit reached; queueing");
      await waitFor("users to wait", told);
      const asks = Array.from({ length: 5 }, () => host.run(argvOf(["true"])));
      await within(Promise.all(asks), 5_000);
      await using own = await within(host.spawn(argvOf(["cat"])), 5_000);
      own.stdin.end("own");
      assert.equal(await within(allOf(own.stdout)), "own");
      stop.abort();
      await within(Promise.allSettled(asked.map(async (child) => (await child).exited)));
    });

  test("saturated pod connections do not delay the node's own", async () => {
    // Each connection gets so much a second, as on a slow line.
    const throttled = new Set<Socket>();
    const slow = createServer((near) => {
      const far = connect(rig().config().port, "127.0.0.1");
      const paced = new Transform({
        transform: (chunk: Buffer, _encoding, done) => void setTimeout(done, chunk.length / 1024, null, chunk),
      });
      near.pipe(paced).pipe(far).pipe(near);
      for (const socket of [near, far]) throttled.add(socket.on("error", () => undefined));
    }).listen(0, "127.0.0.1");
    await once(slow, "listening");
    const { port } = slow.address() as AddressInfo;
    const knownHostsFile = join(rig().outside, "known_hosts_slow");
    writeFileSync(
      knownHostsFile,
      readFileSync(join(rig().outside, "known_hosts"), "utf8").replace(/\]:\d+/, `]:${port}`),
    );
    await using _end = {
      async [Symbol.asyncDispose]() {
        for (const socket of throttled) socket.destroy();
        slow.close();
      },
    };
    await using host = hostOf({ port, knownHostsFile });
    await host.run(argvOf(["true"]));
    const accepted: Duplex[] = [];
    const path = "/run/pods.sock";
    await using _listener = await host.forPods?.listen?.(
      { unix: path },
      (connection) => void accepted.push(connection),
    );
    const taker = `for i in 1 2 3 4 5 6 7 8; do socat -u UNIX:${path} - >/dev/null & done; wait`;
    rig().startInside(["sh", "-c", taker]);
    await waitFor("the connections", () => accepted.length === 8);
    for (const connection of accepted) connection.write(Buffer.alloc(4 * 1024 * 1024));
    const began = Date.now();
    await within(host.run(argvOf(["true"])), 60_000);
    assert.ok(Date.now() - began < 1_000, `${Date.now() - began} ms`);
  });

  test("gives up on a shell that prints endlessly before a command starts, at low cost", async () => {
    await using host = hostOf();
    await host.run(argvOf(["true"]));
    const talker = `${rig().dir}/talker`;
    const data = "#!/usr/bin/perl\nprint 'x' x 65536 while 1;\n";
    await host.fs.apply([{ kind: "write", path: talker, data, mode: 0o755 }]);
    await rig().mustInside(["mount", "--bind", talker, "/bin/sh"]);
    await using _undo = {
      [Symbol.asyncDispose]: async () => void (await rig().mustInside(["umount", "--lazy", "/bin/sh"])),
    };
    const before = process.memoryUsage().rss;
    await assert.rejects(within(host.spawn(argvOf(["cat"]))), {
      code: "failed_precondition",
      message:
        /^the target's shell printed more than 65536 bytes before it ran the command: make sure that no start-up file/,
    });
    const grown = (process.memoryUsage().rss - before) / 2 ** 20;
    assert.ok(grown < 48, `${grown} MiB`);
  });

  test("queues commands beyond the session limit, and logs it", async () => {
    await using host = hostOf();
    const dir = `${rig().dir}/watched`;
    await host.fs.apply([{ kind: "mkdir", path: dir }]);
    const stop = new AbortController();
    const seen: string[] = [];
    const watching = (async () => {
      for await (const path of host.watch?.(dir, stop.signal) ?? []) seen.push(path);
    })();
    await waitFor("the watch", () => seen.length > 0);
    const told = logged().length;
    const commands = Array.from({ length: 30 }, async (_, index) => {
      await using child = await host.spawn(argvOf(["sh", "-c", `sleep 1; exit ${index}`]));
      return await child.exited;
    });
    await within(host.run(argvOf(["true"])));
    assert.deepEqual(
      await within(Promise.all(commands), 60_000),
      Array.from({ length: 30 }, (_, index) => index),
    );
    const state = host.link.state();
    assert.ok(state.kind === "up" && state.connections === 3, JSON.stringify(state));
    assert.match(logged().slice(told), /all SSH sessions in use; queueing/);
    await rig().mustInside(["touch", `${dir}/late`]);
    await waitFor("the change", () => seen.includes(`${dir}/late`));
    stop.abort();
    await watching;
  });
});
