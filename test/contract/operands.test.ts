import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile, mkdir } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { attachLoopDevice, releaseDevicePath } from "../../src/host/loop-device.ts";
import { localHost } from "../../providers/local/host.ts";
import { systemClock } from "../../src/lib/clock.ts";
import {
  type Argv,
  type Option,
  command,
  commandWithoutDashes,
  interpreted,
  script,
  wrapped,
} from "../../src/seams/command.ts";
import { nfs } from "../../src/volumes/nfs.ts";
import type { SetUpDeps } from "../../src/volumes/plugins/plugin.ts";
import type { Pod } from "../../src/objects.ts";
import { mount } from "../../src/volumes/persistent/bind-mount.ts";
import { argvOf } from "../harness/argv.ts";

const host = localHost({ clock: systemClock() });
let directory = "";
before(async () => {
  directory = await mkdtemp(join(tmpdir(), "operands-"));
  await writeFile(join(directory, "-f"), "");
  await mkdir(join(directory, "--help"));
  await writeFile(join(directory, "--help", "inside"), "here");
  await mkdir(join(directory, "-o"));
});
after(async () => {
  await host.run(argvOf(["umount", join(directory, "-o")]));
  await rm(directory, { recursive: true });
});

/** Runs a command in the directory, where names that begin with a dash need no path before them. @returns what it printed. */
async function says(argv: Argv, passes: readonly number[] = [0]): Promise<string> {
  const { code, stdout, stderr } = await host.run(script('cd -- "$1" && shift && exec "$@"', directory, ...argv));
  assert.ok(passes.includes(code), `${argv.join(" ")}: ${code}, ${stderr}`);
  return `${stdout}${stderr}`;
}

for (const [flavour, by] of [
  ["util-linux and coreutils", []],
  ["busybox", ["busybox"]],
] as const)
  describe(`treats names that begin with a dash as operands: ${flavour}`, () => {
    const run = (program: string, options: readonly Option[], operands: readonly string[]) => {
      const argv = command(program, options, operands);
      return says(by.length > 0 ? wrapped(["busybox"], argv) : argv);
    };

    test("du, df, stat and chown accept a file whose name begins with a dash", async () => {
      assert.match(await run("du", ["-skx"], ["-f"]), /^0\t-f$/m);
      assert.match(await run("df", ["-P"], ["-f"]), /^Filesystem .*\n\S+ +\d+ /);
      assert.equal((await run("stat", [["-c", "%n %s"]], ["-f"])).trim(), "-f 0");
      assert.match(await run("stat", ["-f", ["-c", "%S %b"]], ["-f"]), /^\d+ \d+\n$/);
      await run("chown", [], ["7", "-f"]);
      assert.equal((await run("stat", [["-c", "%u"]], ["-f"])).trim(), "7");
    });

    test("umount accepts a directory whose name begins with a dash; mount gets absolute paths", async () => {
      const [from, to] = [join(directory, "--help"), join(directory, "-o")];
      const bind = commandWithoutDashes("mount", [["-o", "bind"]], [from, to]);
      await says(by.length > 0 ? wrapped(["busybox"], bind) : bind);
      assert.equal(await readFile(join(directory, "-o", "inside"), "utf8"), "here");
      await run("umount", [], ["-o"]);
      await assert.rejects(readFile(join(directory, "-o", "inside")), { code: "ENOENT" });
    });
  });

test("refuses an NFS server or path that begins with a dash, and mounts nothing", async () => {
  const mounts = () => readFile("/proc/self/mountinfo", "utf8");
  const before = await mounts();
  const deps = { host, rootDir: join(directory, "root") } as SetUpDeps;
  const volume = (server: string, path: string) => ({ name: "v", nfs: { server, path } });
  const pod = { metadata: { uid: "uid-1" } } as Pod;
  for (const [server, path, message] of [
    ["-x", "/srv", 'nfs.server "-x" is not a host name or an IP address'],
    ["files.example", "-x", 'nfs.path "-x" is not an absolute path'],
  ] as const)
    await assert.rejects(nfs.setUp(deps, pod, volume(server, path), AbortSignal.timeout(60_000)), { message });
  // Whatever a caller forgets to look at, mount gets no such word.
  const operands = ["-x:/srv", join(directory, "--help")];
  await assert.rejects(mount(host, { options: [["-t", "nfs"]], operands }, AbortSignal.timeout(60_000)), {
    message: '"-x:/srv" begins with a dash, which mount would parse as an option: use another name',
  });
  assert.equal(await mounts(), before);
});

test("makes, detects and grows file systems in a file whose name begins with a dash", async () => {
  await writeFile(join(directory, "--disk"), Buffer.alloc(4 * 1024 * 1024));
  await says(command("mkfs.ext4", ["-F", "-m0"], ["--disk"]));
  const found = command("blkid", ["-p", ["-s", "TYPE"], ["-s", "PTTYPE"], ["-o", "export"]], ["--disk"]);
  assert.match(await says(found), /^TYPE=ext4$/m);
  await writeFile(join(directory, "--disk"), Buffer.alloc(4 * 1024 * 1024), { flag: "a" });
  assert.match(await says(command("resize2fs", [], ["--disk"])), /is now 8192 \(1k\) blocks long/);
});

test("passes words that begin with a dash to interpreted programs as arguments", async () => {
  assert.equal(await says(interpreted("perl", 'print "@ARGV"', "-v", "--")), "-v --");
  assert.equal(await says(interpreted("python3", "import sys; print(sys.argv[1:])", "-V", "--")), "['-V', '--']\n");
  assert.equal(await says(script('echo "$@"', "-x", "--")), "-x --\n");
});

test("losetup attaches and detaches a file whose name begins with a dash", async () => {
  const signal = AbortSignal.timeout(60_000);
  const held = join(directory, "-held");
  await writeFile(held, Buffer.alloc(1024 * 1024));
  assert.match(await says(command("losetup", ["-f"], ["-held"])), /^$/);
  assert.equal(await attachLoopDevice(host, held, signal), false, "it is held already");
  await releaseDevicePath(host, held, signal);
  await writeFile(held, Buffer.alloc(1024 * 1024));
  assert.equal(await attachLoopDevice(host, held, signal), true);
  await releaseDevicePath(host, held, signal);
});
