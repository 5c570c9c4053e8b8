import assert from "node:assert/strict";
import { join } from "node:path";
import { describe, test } from "node:test";
import { createTargetLink } from "../../providers/ssh/provider.ts";
import { acquireLocks } from "../../src/host/lock.ts";
import { silentLog } from "../../src/lib/log.ts";
import { refuseMemoryRoot } from "../../src/process/memory-root.ts";
import type { SshHost } from "../../providers/ssh/host.ts";
import { never } from "../fakes/signals.ts";
import { argvOf } from "../harness/argv.ts";
import { sshBench } from "./ssh-bench.ts";
import type { SshdRig } from "./sshd-rig.ts";
import { allOf, within } from "./waiting.ts";

/** An unusual target on which everything works. */
interface Oddity {
  readonly name: string;
  readonly user?: string;
  readonly sshd?: (rig: SshdRig) => readonly string[];
  readonly socketActivated?: boolean;
  /** Shell scripts on the target that make it so, and that restore it. */
  readonly make?: (rig: SshdRig) => string;
  readonly restore?: (rig: SshdRig) => string;
  /** What else must be true while the host is in use. */
  readonly also?: (rig: SshdRig) => Promise<void>;
}

const keys = "AuthorizedKeysFile /etc/ssh/keys.%u";
const keep = (user: string) =>
  `cp ~${user}/.ssh/authorized_keys /etc/ssh/keys.${user}; chmod 644 /etc/ssh/keys.${user}`;

const oddities: Oddity[] = [
  {
    name: "a banner before the login, and a message of the day after it",
    sshd: ({ dir }) => [`Banner ${dir}/banner`, "PrintMotd yes"],
    make: ({ dir }) => `yes 'Authorized access only. \\e[31m' | head -n 200 >${dir}/banner; cp ${dir}/banner /etc/motd`,
  },
  ...["root", "helper"].map(
    (user): Oddity => ({
      name: `a locale with decimal commas, for ${user}`,
      user,
      sshd: ({ dir }) => [
        `SetEnv PATH=${join(dir, "../bin")}:/usr/bin:/bin LOCPATH=${dir}/locales LANG=de_DE.UTF-8 LC_ALL=de_DE.UTF-8 LC_NUMERIC=de_DE.UTF-8 LANGUAGE=de`,
      ],
      make: ({ dir }) =>
        `mkdir -p ${dir}/locales; localedef -i de_DE -f UTF-8 ${dir}/locales/de_DE.UTF-8
       echo 'Defaults env_keep += "LOCPATH LANG LC_* LANGUAGE"' >/etc/sudoers.d/locale
       [ "$(LOCPATH=${dir}/locales LC_ALL=de_DE.UTF-8 /usr/bin/printf %.1f 0,5)" = 0,5 ]`,
      restore: () => "rm /etc/sudoers.d/locale",
    }),
  ),
  ...["root", "helper"].map(
    (user): Oddity => ({
      name: `an sshd that systemd starts for each connection, for ${user}`,
      user,
      socketActivated: true,
    }),
  ),
  {
    name: "/tmp without execution, for a user with sudo",
    user: "helper",
    make: () =>
      "mount --rbind /tmp /tmp; mount -o remount,bind,noexec,nosuid,nodev /tmp; cp /bin/true /tmp/odd-program; ! /tmp/odd-program; rm /tmp/odd-program",
    restore: () => "umount -l /tmp",
  },
  {
    name: "a read-only root file system and /usr",
    make: () => "mount --bind /usr /usr; mount -o remount,bind,ro /usr; mount -o remount,bind,ro /; ! touch /usr/x /x",
    restore: () => "mount -o remount,bind,rw /; umount -l /usr",
  },
  {
    name: "a home directory that does not exist",
    sshd: () => [keys],
    make: () =>
      `${keep("root")}; usermod -d /nonexistent root || sed -i 's,^root:\\(.*\\):/root:,root:\\1:/nonexistent:,' /etc/passwd`,
    restore: () => "sed -i 's,:/nonexistent:,:/root:,' /etc/passwd",
  },
  {
    name: "a home directory that nobody may enter, for a user with sudo",
    user: "helper",
    sshd: () => [keys],
    make: () => `${keep("helper")}; chown daemon /home/helper; chmod 0 /home/helper`,
    restore: () => "chown helper /home/helper; chmod 755 /home/helper",
  },
  {
    name: "an sshd that allows no terminals, agents, variables, or start-up files of its own",
    sshd: () => ["PermitTTY no", "PermitUserRC no", "PermitUserEnvironment no", "AllowAgentForwarding no"],
  },
];

const sftpServer = "/usr/lib/openssh/sftp-server";
for (const user of ["root", "helper"])
  oddities.push({
    name: `no SFTP, for ${user}`,
    user,
    sshd: () => ["Subsystem none /bin/false"],
    make: () => `mount --bind /dev/null ${sftpServer}`,
    restore: () => `umount ${sftpServer}`,
    also: async (rig) => assert.notEqual((await rig.inside(["pgrep", "-f", "sftp-server"])).code, 0),
  });
oddities.push({
  name: "an SFTP server in a place that only sshd's configuration names, for a user with sudo",
  user: "helper",
  make: ({ dir }) =>
    `cp ${sftpServer} ${dir}/odd-server; mount --bind /dev/null ${sftpServer}; cp /etc/ssh/sshd_config ${dir}/kept
     { grep -v ^Subsystem ${dir}/kept; echo HostKey ${join(dir, "../keys")}/ed25519; echo Subsystem sftp ${dir}/odd-server -f AUTHPRIV; } >/etc/ssh/sshd_config`,
  restore: ({ dir }) => `umount ${sftpServer}; cp ${dir}/kept /etc/ssh/sshd_config`,
  also: async (rig) => void (await rig.mustInside(["pgrep", "-f", `^${rig.dir}/odd-server`])),
});

/** Uses every part of a host once. */
async function exercise(host: SshHost, dir: string): Promise<void> {
  assert.deepEqual((await within(host.privileges(never))).missing, []);
  assert.equal((await within(host.run(argvOf(["id", "-un"])))).stdout, "root\n");
  assert.equal((await within(host.run(argvOf(["cat"]), { stdin: "ä $x" }))).stdout, "ä $x");
  await using child = await within(host.spawn(argvOf(["sh", "-c", "cat; exit 7"])));
  child.stdin.end("to a command");
  assert.deepEqual([await within(allOf(child.stdout)), await child.exited], ["to a command", 7]);
  const folder = `${dir}/odd`;
  await host.fs.apply([
    { kind: "mkdir", path: folder },
    { kind: "write", path: `${folder}/ü`, data: "written", mode: 0o600 },
    { kind: "symlink", path: `${folder}/link`, target: "ü" },
  ]);
  const { modifiedAt, size } = await host.fs.stat(`${folder}/link`);
  assert.equal(size, 7);
  assert.ok(Math.abs(Date.now() - modifiedAt) < 60_000, `${modifiedAt}`);
  await assert.rejects(host.fs.stat(`${folder}/none`), { code: "not_found" });
  assert.deepEqual((await host.fs.list(folder)).map(({ name }) => name).sort(), ["link", "ü"]);
  {
    await using file = await host.fs.open(`${folder}/ü`);
    assert.equal((await file.read(2, 4)).toString(), "itte");
    await host.fs.apply([{ kind: "rename", from: `${folder}/ü`, to: `${folder}/.renamed` }]);
    await host.fs.apply([{ kind: "write", path: `${folder}/ü`, data: "another", mode: 0o600 }]);
    assert.deepEqual([(await file.read(0, 9)).toString(), (await file.stat()).size], ["written", 7]);
  }
  assert.ok((await host.fs.fileSystemInfo(folder)).capacityBytes > 0);
  assert.ok(Math.abs(await host.clock.offsetMs()) < 60_000);
  {
    await using _lock = await within(acquireLocks(host, [{ path: `${folder}/ü` }], never));
  }
  assert.equal(await host.fs.realpath(`${folder}/link`), `${folder}/ü`);
  assert.equal(await host.fs.readlink(`${folder}/link`), "ü");
  const socket = { unix: `${folder}/socket` };
  await using _listener = await within(Promise.resolve(host.listen?.(socket, (far) => far.end("back"))));
  assert.equal(await within(allOf(await within(host.dial(socket)))), "back");
  await host.fs.apply([{ kind: "remove", path: folder, recursive: true }]);
}

describe("an unusual target over SSH", () => {
  const { rig, hostOf } = sshBench("oddities");

  for (const { name, user = "root", sshd, socketActivated = false, make, restore, also } of oddities)
    test(`supports ${name}`, async () => {
      await using undo = new AsyncDisposableStack();
      if (make) await rig().mustInside(["sh", "-ec", make(rig())]);
      if (restore) undo.defer(async () => void (await rig().mustInside(["sh", "-ec", restore(rig())])));
      if (sshd || socketActivated) {
        await rig().startSshd(sshd?.(rig()), { socketActivated });
        undo.defer(() => rig().startSshd());
      }
      await using host = hostOf({ user });
      await exercise(host, rig().dir);
      await also?.(rig());
    });

  test("names the line for sudoers if sudo requires a terminal", async () => {
    const file = "/etc/sudoers.d/terminal";
    await rig().mustInside(["sh", "-ec", `echo 'Defaults requiretty' >${file}; chmod 440 ${file}`]);
    await using undo = new AsyncDisposableStack();
    undo.defer(async () => void (await rig().mustInside(["rm", file])));
    {
      await using host = hostOf({ user: "helper" });
      const { runAs, missing } = await host.privileges(never);
      assert.equal(runAs, "user");
      assert.match(
        missing[0] ?? "",
        /its sudo asks for a terminal, .*: add the line `Defaults:helper !requiretty` to its sudoers/,
      );
    }
    await rig().mustInside(["sh", "-ec", `echo 'Defaults:helper !requiretty' >>${file}`]);
    await using host = hostOf({ user: "helper" });
    await exercise(host, rig().dir);
  });

  test("refuses a root directory in the target's memory, and names the mount point", async () => {
    await using host = hostOf();
    const check = (rootDir: string) =>
      refuseMemoryRoot(
        { target: { host, link: createTargetLink(host.link) }, log: silentLog() },
        { nodeName: "odd", rootDir },
        never,
      );
    await assert.rejects(check("/var/lib/kubelet"), {
      reason: "RootDirUnusable",
      message: /is in the target's memory \(tmpfs at \/var\/lib\), .*: set rootDir to a directory on a disk/,
    });
  });
});
