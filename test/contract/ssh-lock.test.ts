import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { LockHeldError, SupersededError, acquireLocks } from "../../src/host/lock.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { never } from "../fakes/signals.ts";
import { waitFor } from "../harness/wait.ts";
import { sshBench } from "./ssh-bench.ts";
import { argvOf } from "../harness/argv.ts";

const clock = systemClock();

for (const programs of ["debian", "busybox"] as const)
  describe(`locks on a target over SSH, with the programs of ${programs}`, () => {
    const { rig, hostOf, isUp } = sshBench(`lock-${programs}`, { programs });
    /** A file and a directory on the target, to be locked. */
    const places = async (name: string): Promise<readonly [file: string, directory: string]> => {
      const [file, directory] = [`${rig().dir}/${name}.lock`, `${rig().dir}/${name}`];
      await rig().mustInside(["sh", "-c", `touch ${file}; mkdir ${directory}`]);
      return [file, directory];
    };
    const isTaken = (path: string) => (error: unknown) => {
      assert.ok(error instanceof LockHeldError, String(error));
      assert.equal(error.path, path);
      return true;
    };

    test("the target has the timeout and dd programs under test", async () => {
      await using host = hostOf();
      const { stdout } = await host.run(
        argvOf(["sh", "-c", "for program in timeout dd; do $program --help 2>&1; done"]),
      );
      assert.equal(stdout.match(/^BusyBox v/gm)?.length ?? 0, programs === "busybox" ? 2 : 0, stdout);
    });

    test("either all locks are acquired or none; another agent is told which lock is taken, and acquires all once they are free", async () => {
      await using host = hostOf();
      await using other = hostOf();
      const [file, directory] = await places("alone");
      {
        await using held = await acquireLocks(host, [{ path: file }], never);
        await assert.rejects(acquireLocks(other, [{ path: directory }, { path: file }], never), isTaken(file));
        assert.equal(held.hasEnded(), false);
      }
      await using _both = await acquireLocks(other, [{ path: directory }, { path: file }], never);
      await assert.rejects(acquireLocks(host, [{ path: directory }], never), isTaken(directory));
    });

    test("locks can be shared, which excludes exclusive holders", async () => {
      await using host = hostOf();
      await using other = hostOf();
      const [, directory] = await places("shared");
      await using _one = await acquireLocks(host, [{ path: directory, shared: true }], never);
      await using _two = await acquireLocks(other, [{ path: directory, shared: true }], never);
      await assert.rejects(acquireLocks(other, [{ path: directory }], never), isTaken(directory));
    });

    test("locks are released when heartbeats stop, and kept while they arrive", async () => {
      await using host = hostOf();
      await using other = hostOf();
      const [file, directory] = await places("silent");
      const silence = { clock, timeoutSeconds: 3 };
      await using heard = await acquireLocks(host, [{ path: directory }], never, { ...silence, intervalMs: 500 });
      await using unheard = await acquireLocks(host, [{ path: file }], never, { ...silence, intervalMs: 600_000 });
      await waitFor("it to be given up", () => unheard.hasEnded());
      await using _free = await acquireLocks(other, [{ path: file }], never);
      await waitFor("more silence than is borne", () => clock.sleep(6_000).then(() => true));
      assert.equal(heard.hasEnded(), false);
      await assert.rejects(acquireLocks(other, [{ path: directory }], never), isTaken(directory));
    });

    test("a later epoch gets the locks of an earlier one within seconds; an earlier one gets none, and claims none", async () => {
      await using host = hostOf();
      await using other = hostOf();
      const [file, directory] = await places("fenced");
      const fence = (epoch: number, object = "one") => ({ directory, token: { object, epoch } });
      const heartbeat = { clock, timeoutSeconds: 60, intervalMs: 15_000 };
      const acquire = (of: typeof host, epoch: number, object?: string) =>
        acquireLocks(of, [{ path: file }], never, heartbeat, fence(epoch, object));
      await using first = await acquire(host, 4);
      await assert.rejects(acquire(other, 3), isTaken(file));
      await assert.rejects(acquire(other, 9, "another"), isTaken(file));
      await clock.sleep(6_000);
      assert.equal(first.hasEnded(), false);

      await assert.rejects(acquire(other, 5), isTaken(file));
      await waitFor("the earlier one to let go", () => first.hasEnded(), { timeoutMs: 10_000 });
      await assert.rejects(acquire(host, 4), SupersededError);
      await using later = await acquire(other, 5);
      await waitFor("the former connection to end", () => host.link.state().kind !== "up");
      await isUp(host);
      await assert.rejects(acquire(host, 4), isTaken(file));
      await clock.sleep(6_000);
      assert.equal(later.hasEnded(), false);
      await later[Symbol.asyncDispose]();
      await assert.rejects(acquire(host, 4), SupersededError);
      await using _next = await acquire(host, 6);
    });

    for (const { user, server } of [
      { user: "root", server: "sshd" },
      { user: "helper", server: "sshd" },
      { user: "plain", server: "sshd" },
      { user: "root", server: "dropbear" },
    ])
      test(`a later epoch ends all connections of ${user} to ${server} in an earlier one, with their commands, and no other`, async () => {
        await (server === "sshd" ? rig().startSshd() : rig().startDropbear());
        await using host = hostOf({ user });
        await using neighbour = hostOf({ user });
        const directory = `/run/locks-of-${user}-${server}`;
        const file = `${directory}/lock`;
        await rig().mustInside(["sh", "-ec", `mkdir ${directory}; touch ${file}; chown ${user} ${file} ${directory}`]);
        const acquire = (of: typeof host, epoch: number, timeoutSeconds: number, intervalMs: number) =>
          acquireLocks(
            of,
            [{ path: file }],
            never,
            { clock, timeoutSeconds, intervalMs },
            { directory, token: { object: "one", epoch } },
          );
        // This process is not heard any more, but its connection is not broken.
        await using silent = await acquire(host, 4, 6, 600_000);
        // More commands than a connection has sessions.
        const late = Array.from({ length: 12 }, (_, index) =>
          host.run(argvOf(["sh", "-c", `sleep 12; touch ${directory}/late-${index}`])),
        );
        const ended = Promise.all(late.map((each) => assert.rejects(each, { code: "unavailable" })));
        await waitFor("a further connection", () => host.link.connections().length > 1);
        const uptime = neighbour.run(argvOf(["sh", "-c", "sleep 14; echo undisturbed"]));
        await waitFor("the lock to be released", () => silent.hasEnded(), { timeoutMs: 20_000 });
        await using other = hostOf({ user });
        await using next = await acquire(other, 5, 60, 15_000);
        await ended;
        assert.equal((await uptime).stdout, "undisturbed\n");
        const left = await host.fs.list(directory);
        assert.deepEqual(
          left.filter(({ name }) => name.startsWith("late")),
          [],
        );
        assert.equal(next.hasEnded(), false);
        // The former connection is not this one: nothing is ended twice.
        await next[Symbol.asyncDispose]();
        await using _again = await acquire(other, 6, 60, 15_000);
        assert.equal((await other.run(argvOf(["echo", "connected"]))).stdout, "connected\n");
        assert.equal(other.link.state().kind, "up");
      });

    test("locks are released within seconds when their directory is removed, and a later epoch excludes an earlier one also without records", async () => {
      await using host = hostOf();
      await using other = hostOf();
      await using idle = hostOf();
      const directory = `${rig().dir}/removed`;
      const file = `${directory}/lock`;
      const make = () => rig().mustInside(["sh", "-c", `mkdir -p ${directory}; touch ${file}`]);
      const heartbeat = { clock, timeoutSeconds: 60, intervalMs: 1_000 };
      const acquire = (of: typeof host, epoch: number) =>
        acquireLocks(of, [{ path: file }], never, heartbeat, { directory, token: { object: "one", epoch } });
      for (const remove of [`rm -rf ${directory}`, `rm ${file}; touch ${file}`]) {
        await make();
        await using served = await acquire(host, 5);
        await rig().mustInside(["sh", "-c", remove]);
        await waitFor("it to be given up", () => served.hasEnded(), { timeoutMs: 12_000 });
        if (remove.startsWith("rm -rf")) await assert.rejects(acquire(host, 5), { code: "unknown" });
      }
      // Without its records, an earlier epoch is not refused; the later one still gets the locks, and records itself again.
      await rig().mustInside(["rm", "-rf", directory]);
      await make();
      await using earlier = await acquire(other, 4);
      await assert.rejects(acquire(host, 5), isTaken(file));
      await waitFor("the earlier one to let go", () => earlier.hasEnded(), { timeoutMs: 12_000 });
      await using _later = await acquire(host, 5);
      await assert.rejects(acquire(idle, 4), isTaken(file));
      const unfenced = [{ path: `${directory}/unfenced` }];
      await rig().mustInside(["touch", `${directory}/unfenced`]);
      await using plain = await acquireLocks(idle, unfenced, never, heartbeat);
      await rig().mustInside(["rm", `${directory}/unfenced`]);
      await waitFor("that one to be given up, too", () => plain.hasEnded(), { timeoutMs: 12_000 });
    });

    test("records of processes that have ended, or whose numbers others have by now, end no process", async () => {
      await using host = hostOf();
      const [file, directory] = await places("reused");
      const bystander = "sleep 600 </dev/null >/dev/null 2>&1 & echo $!";
      const pid = (await rig().mustInside(["sh", "-c", bystander])).trim();
      const [started = "", boot = ""] = (
        await rig().mustInside(["sh", "-c", `cut -d' ' -f22 /proc/${pid}/stat; cat /proc/sys/kernel/random/boot_id`])
      ).split("\n");
      const otherBoot = "00000000-1111-2222-3333-444444444444";
      const records = [
        `${pid} ${started} ${otherBoot}`,
        `${pid} ${Number(started) - 1} ${boot}`,
        `4194303 ${started} ${boot}`,
        pid,
        `-1 ${started} ${boot}`,
        `1 ${started}`,
        `${pid};kill ${pid}`,
        "",
      ];
      await rig().mustInside(["sh", "-c", `printf '%s\\n' "$@" >${directory}/connection.4`, "sh", ...records]);
      await rig().mustInside(["sh", "-c", `echo one 4 >${directory}/token`]);
      const fence = { directory, token: { object: "one", epoch: 5 } };
      const acquire = () =>
        acquireLocks(host, [{ path: file }], never, { clock, timeoutSeconds: 60, intervalMs: 1_000 }, fence);
      {
        await using held = await acquire();
        await rig().mustInside(["kill", "-0", pid]);
        assert.equal(held.hasEnded(), false);
      }
      // The exact process is ended: the records above were read.
      await rig().mustInside(["sh", "-c", `echo ${pid} ${started} ${boot} >${directory}/connection.4`]);
      await using _again = await acquire();
      await waitFor("it to be ended", async () => (await rig().inside(["kill", "-0", pid])).code !== 0);
    });

    test("locks with a token are released when heartbeats stop, and kept while they arrive", async () => {
      await using host = hostOf();
      const [file, directory] = await places("fenced-silent");
      const fence = { directory, token: { object: "one", epoch: 1 } };
      const silence = { clock, timeoutSeconds: 7 };
      const [heardFile] = await places("fenced-heard");
      const heartbeat = { ...silence, intervalMs: 1_500 };
      await using heard = await acquireLocks(host, [{ path: heardFile }], never, heartbeat, fence);
      const unanswered = { ...silence, intervalMs: 600_000 };
      const silent = await acquireLocks(host, [{ path: file }], never, unanswered, fence);
      await waitFor("it to be given up", () => silent.hasEnded(), { timeoutMs: 20_000 });
      assert.equal(heard.hasEnded(), false);
      assert.equal(heard.isVerified(), true);
    });
  });
