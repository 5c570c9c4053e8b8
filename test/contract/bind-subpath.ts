import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { SubPathError, bindSubPaths } from "../../src/host/bind-subpath.ts";
import type { Host } from "../../src/seams/host.ts";
import type { HostUnderTest } from "./host.ts";
import { within } from "./waiting.ts";
import { argvOf } from "../harness/argv.ts";

const patience = AbortSignal.timeout(300_000);

/** A tree that a container may write in, a folder beside it that is none of its business, and a place to bind parts at. */
interface Tree {
  readonly host: Host;
  readonly base: string;
  readonly outside: string;
  readonly target: string;
  bind(below: string): Promise<void>;
  /** What a command says on the machine; its words of failure too. */
  says(...argv: readonly string[]): Promise<string>;
  mounted(): Promise<boolean>;
}

/** What `bindSubPaths` promises, on a host of each kind: its commands are the target's own. */
export function bindContract(name: string, make: () => Promise<HostUnderTest>): void {
  describe(`binding of subPath mounts in ${name}`, () => {
    let made: HostUnderTest | undefined;
    let trees = 0;
    before(async () => {
      made = await make();
    });
    after(async () => made?.[Symbol.asyncDispose]());

    /** Runs a test on a tree of its own; nothing stays mounted. */
    const onTree = async (work: (tree: Tree) => Promise<void>) => {
      assert.ok(made, "the host could not be made");
      const { host, dir } = made;
      const root = `${dir}/tree ${++trees}`;
      const [base, outside, target] = [`${root}/base`, `${root}/outside`, `${root}/pod/parts/0`];
      await host.fs.apply([
        { kind: "mkdir", path: base, parents: true, mode: 0o2770 },
        { kind: "mkdir", path: outside },
        { kind: "write", path: `${outside}/secret`, data: "secret" },
      ]);
      await host.fs.apply([{ kind: "chmod", path: base, mode: 0o2770 }]);
      const says = async (...argv: readonly string[]) => {
        const { stdout, stderr } = await host.run(argvOf(argv));
        return `${stdout}${stderr}`.trimEnd();
      };
      const mounted = async () =>
        (await host.fs.readFile("/proc/self/mountinfo")).toString().includes("/pod/parts/0") ||
        (await says("cat", "/proc/self/mountinfo")).includes("/pod/parts/0");
      const bind = (below: string) => bindSubPaths(host, [{ base, below, target }], patience);
      try {
        await work({ host, base, outside, target, bind, says, mounted });
      } finally {
        await host.run(argvOf(["umount", target]));
      }
      assert.equal(await mounted(), false, "one mount at a time");
      assert.equal(await says("ls", outside), "secret");
    };

    test("binds directories, files, and the targets of links within the volume", () =>
      onTree(async ({ host, base, target, bind, says }) => {
        await host.fs.apply([
          { kind: "mkdir", path: `${base}/-a b/$(c)'"`, parents: true },
          { kind: "write", path: `${base}/-a b/$(c)'"/file`, data: "deep" },
          { kind: "write", path: `${base}/file`, data: "text" },
          { kind: "symlink", path: `${base}/in`, target: "-a b" },
          { kind: "symlink", path: `${base}/to-file`, target: "in/../file" },
        ]);
        await bind(`-a b/$(c)'"`);
        assert.equal(await says("cat", `${target}/file`), "deep");
        await bind(`in/$(c)'"/file`);
        assert.equal(await says("cat", target), "deep");
        await bind("to-file");
        assert.equal(await says("cat", target), "text");
        await bind("");
        assert.deepEqual((await says("ls", target)).split("\n"), ["-a b", "file", "in", "to-file"]);
      }));

    test("binds a FIFO and a socket without opening them", () =>
      onTree(async ({ base, target, bind, says }) => {
        await made?.makeFifo(`${base}/fifo`);
        await within(bind("fifo"));
        assert.equal(await says("stat", "-c", "%F", target), "fifo");
        await made?.makeSocket(`${base}/socket`);
        await bind("socket");
        assert.equal(await says("stat", "-c", "%F", target), "socket");
      }));

    test("creates missing directories with the mode and owner of the volume's root", () =>
      onTree(async ({ base, target, bind, says }) => {
        await bind("new/deep");
        const modes = await says("stat", "-c", "%a", `${base}/new`, `${base}/new/deep`, target, `${target}/../..`);
        assert.deepEqual(modes.split("\n"), ["2770", "2770", "2770", "750"]);
      }));

    test("refuses a path that is blocked or leaves the volume, and creates or mounts nothing", () =>
      onTree(async ({ host, base, outside, bind, mounted }) => {
        await made?.makeFifo(`${base}/fifo`);
        await host.fs.apply([
          { kind: "write", path: `${base}/file`, data: "" },
          { kind: "symlink", path: `${base}/out`, target: outside },
          { kind: "symlink", path: `${base}/up`, target: "../outside" },
          { kind: "symlink", path: `${base}/secret`, target: `${outside}/secret` },
          { kind: "symlink", path: `${base}/nowhere`, target: "none" },
          { kind: "symlink", path: `${base}/round`, target: "round" },
          { kind: "symlink", path: `${base}/root`, target: "/proc/1/root" },
        ]);
        // Only what does not exist is created: of a name that cannot be looked up that is not known.
        const tooLong = "l".repeat(256);
        for (const below of ["out/new", "up/a/b", "nowhere", "nowhere/a", `new/${tooLong}`])
          await assert.rejects(within(bind(below)), { step: "create" }, below);
        for (const below of ["out", "up", "secret", "fifo/a", "file/a", "round", "round/a", tooLong, `${tooLong}/a`])
          await assert.rejects(within(bind(below)), { step: "bind" }, below);
        // Whether this leads anywhere is for the machine to say.
        for (const below of ["root", "root/etc/hostname"])
          await assert.rejects(within(bind(below)), { name: "PartError" }, below);
        assert.equal(await mounted(), false);
      }));

    test("shows the current content when a path is bound again after a file and a directory replaced each other", () =>
      onTree(async ({ host, base, target, bind, says }) => {
        for (const text of ["one", "two"]) {
          await host.fs.apply([
            { kind: "remove", path: `${base}/it`, recursive: true },
            { kind: "write", path: `${base}/it`, data: text },
          ]);
          await bind("it");
          assert.equal(await says("cat", target), text);
          await host.fs.apply([
            { kind: "remove", path: `${base}/it` },
            { kind: "mkdir", path: `${base}/it` },
            { kind: "write", path: `${base}/it/${text}`, data: "" },
          ]);
          await bind("it");
          assert.equal(await says("ls", target), text);
        }
      }));

    test("shows a file system that is mounted inside the volume", () =>
      onTree(async ({ host, base, target, bind, says }) => {
        await host.fs.apply([{ kind: "mkdir", path: `${base}/disk` }]);
        assert.equal(await says("mount", "-t", "tmpfs", "tmpfs", `${base}/disk`), "");
        try {
          await bind("disk/new");
          assert.equal(await says("stat", "-f", "-c", "%T", target), "tmpfs");
        } finally {
          await says("umount", target);
          await says("umount", `${base}/disk`);
        }
      }));

    // Each runs until both outcomes have been seen often enough: whoever wins the race, nothing outside is shown or made.
    const attacks = [
      ["a directory", "way", "way", "ls"],
      ["the parent of a missing directory", "way", "way/new", "ls"],
      ["a file", "mine", "mine", "cat"],
    ] as const;
    for (const [what, name, below, look] of attacks)
      test(`never leaves the volume while ${what} is repeatedly swapped with a symbolic link`, () =>
        onTree(async ({ host, base, outside, target, bind, says }) => {
          await host.fs.apply([
            { kind: "mkdir", path: `${base}/way` },
            { kind: "write", path: `${base}/way/mine`, data: "mine" },
            { kind: "write", path: `${base}/mine`, data: "mine" },
          ]);
          // What the node makes in the meantime is put out of the way.
          const swap =
            "my ($name, $away) = @ARGV; for (my $n = 0; ; $n++) { rename $name, 'aside' or rename $name, qq(made-$n); symlink $away, $name; unlink $name; rename 'aside', $name; }";
          const away = name === "mine" ? `${outside}/secret` : outside;
          const argv = ["sh", "-c", 'cd "$1" && exec perl -e "$2" "$3" "$4"', "sh", base, swap, name, away];
          await using attacker = await host.spawn(argvOf(argv));
          const seen = { bound: 0, refused: 0 };
          for (let tries = 0; Math.min(seen.bound, seen.refused) < 5 || tries < 30; tries += 1) {
            try {
              await bind(below.replace("new", `new-${tries}`));
              seen.bound += 1;
            } catch (error) {
              assert.ok(error instanceof SubPathError, String(error));
              seen.refused += 1;
            }
            assert.doesNotMatch(await says(look, target), /secret/);
          }
          attacker.kill("SIGKILL");
          await attacker.exited;
        }));
  });
}
