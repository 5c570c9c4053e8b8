import assert from "node:assert/strict";
import { test } from "node:test";
import type { FileChange } from "../../src/seams/host.ts";
import type { Bench } from "./host.ts";

/** Changes to files. */
export function changeContract({ current, folder }: Bench): void {
  const apply = (...changes: readonly FileChange[]) => current().host.fs.apply(changes);
  const modeOf = async (path: string) => (await current().host.fs.lstat(path)).mode;
  const text = async (path: string) => (await current().host.fs.readFile(path)).toString();
  const names = async (path: string) => (await current().host.fs.list(path)).map(({ name }) => name).sort();

  test("mkdir sets the exact mode, creates parents with 0755 if asked, and keeps existing directories", async () => {
    const dir = await folder();
    await apply({ kind: "mkdir", path: `${dir}/a/b/c`, mode: 0o1777, parents: true });
    assert.deepEqual(
      [await modeOf(`${dir}/a`), await modeOf(`${dir}/a/b`), await modeOf(`${dir}/a/b/c`)],
      [0o755, 0o755, 0o1777],
    );
    await apply({ kind: "mkdir", path: `${dir}/a/b/c`, mode: 0o700 });
    assert.equal(await modeOf(`${dir}/a/b/c`), 0o1777);
    await apply({ kind: "mkdir", path: `${dir}/plain` });
    assert.equal(await modeOf(`${dir}/plain`), 0o755);
    await assert.rejects(apply({ kind: "mkdir", path: `${dir}/x/y` }), { code: "not_found" });
    await apply({ kind: "write", path: `${dir}/f`, data: "" });
    await assert.rejects(apply({ kind: "mkdir", path: `${dir}/f` }), { code: "already_exists" });
  });

  test("mkdir accepts a link to a directory", async () => {
    const dir = await folder();
    await apply(
      { kind: "mkdir", path: `${dir}/d` },
      { kind: "symlink", path: `${dir}/l`, target: "d" },
      { kind: "mkdir", path: `${dir}/l/below`, parents: true },
    );
    assert.deepEqual(await names(`${dir}/d`), ["below"]);
  });

  test("create makes an empty file if nothing exists, and changes neither files nor link targets", async () => {
    const dir = await folder();
    const create = (name: string) => apply({ kind: "create", path: `${dir}/${name}` });
    await create("new");
    assert.deepEqual([await text(`${dir}/new`), await modeOf(`${dir}/new`)], ["", 0o644]);
    await apply(
      { kind: "write", path: `${dir}/victim`, data: "precious", mode: 0o600 },
      { kind: "symlink", path: `${dir}/link`, target: "victim" },
      { kind: "symlink", path: `${dir}/dangling`, target: "made-through-a-link" },
      { kind: "mkdir", path: `${dir}/directory` },
    );
    await current().makeFifo(`${dir}/fifo`);
    for (const name of ["victim", "link", "dangling", "directory", "fifo"])
      await assert.rejects(create(name), { code: "already_exists" });
    assert.deepEqual([await text(`${dir}/victim`), await modeOf(`${dir}/victim`)], ["precious", 0o600]);
    assert.deepEqual(await names(dir), ["dangling", "directory", "fifo", "link", "new", "victim"]);
    await assert.rejects(create("none/f"), { code: "not_found" });
  });

  test("mkdir creates nothing through a dangling link, and changes no mode of a file that replaces the directory", async () => {
    const dir = await folder();
    await apply({ kind: "symlink", path: `${dir}/dangling`, target: "elsewhere" });
    for (const path of [`${dir}/dangling`, `${dir}/dangling/below`])
      await assert.rejects(apply({ kind: "mkdir", path, parents: true }));
    await apply({ kind: "mkdir", path: `${dir}/victim`, mode: 0o700 }, { kind: "mkdir", path: `${dir}/there` });
    await apply({ kind: "symlink", path: `${dir}/there/link`, target: "../victim" });
    {
      await using _swapping = await current().swap(`${dir}/there/made`, `${dir}/there/link`);
      for (let round = 0; round < 40; round += 1)
        await apply({ kind: "mkdir", path: `${dir}/there/made` }, { kind: "remove", path: `${dir}/there/made` }).catch(
          () => undefined,
        );
    }
    assert.equal(await modeOf(`${dir}/victim`), 0o700);
    assert.deepEqual(await names(dir), ["dangling", "there", "victim"]);
  });

  test("write sets the exact mode and content of new and existing files", async () => {
    const dir = await folder();
    await apply({ kind: "write", path: `${dir}/f`, data: "long text", mode: 0o666 });
    assert.deepEqual([await text(`${dir}/f`), await modeOf(`${dir}/f`)], ["long text", 0o666]);
    await apply({ kind: "write", path: `${dir}/f`, data: Buffer.from("short"), mode: 0o400 });
    assert.deepEqual([await text(`${dir}/f`), await modeOf(`${dir}/f`)], ["short", 0o400]);
    await apply({ kind: "write", path: `${dir}/default`, data: "" });
    assert.equal(await modeOf(`${dir}/default`), 0o644);
    await assert.rejects(apply({ kind: "write", path: `${dir}/none/f`, data: "" }), { code: "not_found" });
    await assert.rejects(apply({ kind: "write", path: dir, data: "" }), { code: "failed_precondition" });
  });

  test("symlink is idempotent, and fails with already_exists if something else exists there", async () => {
    const dir = await folder();
    const link = { kind: "symlink", path: `${dir}/l`, target: "somewhere" } as const;
    await apply(link, link);
    assert.equal(await current().host.fs.readlink(`${dir}/l`), "somewhere");
    await assert.rejects(apply({ ...link, target: "elsewhere" }), { code: "already_exists" });
    await apply({ kind: "write", path: `${dir}/f`, data: "" });
    await assert.rejects(apply({ ...link, path: `${dir}/f` }), { code: "already_exists" });
  });

  test("rename replaces files and links atomically", async () => {
    const dir = await folder();
    await apply(
      { kind: "write", path: `${dir}/old`, data: "old" },
      { kind: "write", path: `${dir}/new`, data: "new" },
      { kind: "rename", from: `${dir}/new`, to: `${dir}/old` },
      { kind: "symlink", path: `${dir}/l`, target: "1" },
      { kind: "symlink", path: `${dir}/l2`, target: "2" },
      { kind: "rename", from: `${dir}/l2`, to: `${dir}/l` },
    );
    assert.deepEqual(
      [await text(`${dir}/old`), await current().host.fs.readlink(`${dir}/l`), await names(dir)],
      ["new", "2", ["l", "old"]],
    );
    await assert.rejects(apply({ kind: "rename", from: `${dir}/none`, to: `${dir}/x` }), { code: "not_found" });
  });

  test("gives a replaced file a new inode", async () => {
    const dir = await folder();
    await apply({ kind: "write", path: `${dir}/f`, data: "1" }, { kind: "write", path: `${dir}/g`, data: "2" });
    const before = (await current().host.fs.lstat(`${dir}/f`)).inode;
    await apply({ kind: "rename", from: `${dir}/g`, to: `${dir}/f` });
    assert.notEqual((await current().host.fs.lstat(`${dir}/f`)).inode, before);
  });

  test("chmod sets all bits; chown changes the link itself", async () => {
    const dir = await folder();
    await apply(
      { kind: "write", path: `${dir}/f`, data: "" },
      { kind: "symlink", path: `${dir}/l`, target: "f" },
      { kind: "chmod", path: `${dir}/f`, mode: 0o6751 },
      { kind: "chown", path: `${dir}/l`, uid: 1234, gid: 4321 },
    );
    const { fs } = current().host;
    assert.equal(await modeOf(`${dir}/f`), 0o6751);
    const [link, file] = [await fs.lstat(`${dir}/l`), await fs.lstat(`${dir}/f`)];
    assert.deepEqual([link.uid, link.gid], [1234, 4321]);
    assert.notEqual(file.uid, 1234);
    await assert.rejects(apply({ kind: "chmod", path: `${dir}/none`, mode: 0 }), { code: "not_found" });
  });

  test("applies changes in order, up to the first failure", async () => {
    const dir = await folder();
    const changes: readonly FileChange[] = [
      { kind: "mkdir", path: `${dir}/a` },
      { kind: "write", path: `${dir}/a/f`, data: "" },
      { kind: "rename", from: `${dir}/none`, to: `${dir}/b` },
      { kind: "mkdir", path: `${dir}/c` },
    ];
    await assert.rejects(apply(...changes), { code: "not_found" });
    assert.deepEqual([await names(dir), await names(`${dir}/a`)], [["a"], ["f"]]);
    await assert.rejects(current().host.fs.apply([{ kind: "mkdir", path: `${dir}/d` }], AbortSignal.abort()), {
      code: "cancelled",
    });
    assert.deepEqual(await names(dir), ["a"]);
  });

  test("remove deletes files, links, empty directories and, if asked, trees; a missing path is no error", async () => {
    const dir = await folder();
    await apply(
      { kind: "mkdir", path: `${dir}/tree/a/b`, parents: true },
      { kind: "write", path: `${dir}/tree/a/b/f`, data: "", mode: 0o000 },
      { kind: "write", path: `${dir}/f`, data: "" },
      { kind: "mkdir", path: `${dir}/empty` },
    );
    await assert.rejects(apply({ kind: "remove", path: `${dir}/tree` }), { code: "failed_precondition" });
    assert.deepEqual(await names(`${dir}/tree/a/b`), ["f"]);
    await apply(
      { kind: "remove", path: `${dir}/f` },
      { kind: "remove", path: `${dir}/empty` },
      { kind: "remove", path: `${dir}/tree`, recursive: true },
      { kind: "remove", path: `${dir}/none` },
      { kind: "remove", path: `${dir}/none/deeper`, recursive: true },
    );
    assert.deepEqual(await names(dir), []);
  });

  test("remove follows no link, at the top or below", async () => {
    const dir = await folder();
    await apply(
      { kind: "mkdir", path: `${dir}/precious` },
      { kind: "write", path: `${dir}/precious/f`, data: "" },
      { kind: "mkdir", path: `${dir}/tree` },
      { kind: "symlink", path: `${dir}/tree/l`, target: "../precious" },
      { kind: "symlink", path: `${dir}/top`, target: "precious" },
      { kind: "remove", path: `${dir}/tree`, recursive: true },
      { kind: "remove", path: `${dir}/top`, recursive: true },
    );
    assert.deepEqual([await names(dir), await names(`${dir}/precious`)], [["precious"], ["f"]]);
  });

  test("remove deletes names that are not UTF-8, paths longer than PATH_MAX, and fifty thousand files", async () => {
    const dir = await folder();
    await apply({ kind: "mkdir", path: `${dir}/tree/a`, parents: true });
    await current().makeAwkward(`${dir}/tree/a`);
    await apply({ kind: "remove", path: `${dir}/tree`, recursive: true });
    assert.deepEqual(await names(dir), []);
  });

  test("remove follows no link that replaces a directory meanwhile", async () => {
    const dir = await folder();
    const precious = Array.from({ length: 20 }, (_, index) => `${index}`);
    await apply(
      { kind: "mkdir", path: `${dir}/precious` },
      ...precious.map((name) => ({ kind: "write", path: `${dir}/precious/${name}`, data: "" }) as const),
    );
    const tree: readonly FileChange[] = [
      { kind: "mkdir", path: `${dir}/tree/d/deeper`, parents: true },
      ...precious.map((name) => ({ kind: "write", path: `${dir}/tree/d/${name}`, data: "" }) as const),
      { kind: "symlink", path: `${dir}/tree/l`, target: "../precious" },
    ];
    for (let round = 0; round < 20; round += 1) {
      await apply(...tree);
      {
        await using _swapping = await current().swap(`${dir}/tree/d`, `${dir}/tree/l`);
        await apply({ kind: "remove", path: `${dir}/tree`, recursive: true }).catch(() => undefined);
      }
      assert.deepEqual(await names(`${dir}/precious`), [...precious].sort());
      await apply({ kind: "remove", path: `${dir}/tree`, recursive: true });
    }
    assert.deepEqual(await names(dir), ["precious"]);
  });

  test("remove reports permission_denied for immutable files, and deletes them once they are mutable", async () => {
    const dir = await folder();
    await apply(
      { kind: "mkdir", path: `${dir}/tree/a`, parents: true },
      { kind: "write", path: `${dir}/tree/a/fixed`, data: "" },
    );
    {
      await using _frozen = await current().freeze(`${dir}/tree/a/fixed`);
      await assert.rejects(apply({ kind: "remove", path: `${dir}/tree`, recursive: true }), {
        code: "permission_denied",
      });
    }
    await apply({ kind: "remove", path: `${dir}/tree`, recursive: true });
    assert.deepEqual(await names(dir), []);
  });

  test("remove crosses no file system, and removes no mount point", async () => {
    const dir = await folder();
    await apply({ kind: "mkdir", path: `${dir}/tree/mounted`, parents: true });
    {
      await using _mounted = await current().mount(`${dir}/tree/mounted`);
      await apply({ kind: "write", path: `${dir}/tree/mounted/f`, data: "theirs" });
      for (const path of [`${dir}/tree`, `${dir}/tree/mounted`])
        await assert.rejects(apply({ kind: "remove", path, recursive: true }), { code: "failed_precondition" });
      await assert.rejects(apply({ kind: "remove", path: `${dir}/tree/mounted` }), { code: "failed_precondition" });
      assert.equal(await text(`${dir}/tree/mounted/f`), "theirs");
    }
    await apply({ kind: "remove", path: `${dir}/tree`, recursive: true });
    assert.deepEqual(await names(dir), []);
  });

  test("remove counts a missing file of a read-only file system as removed", async (t) => {
    const dir = await folder();
    const { unmount } = current();
    if (!unmount) return t.skip("mounts are made in another namespace");
    await apply({ kind: "mkdir", path: `${dir}/fixed` }, { kind: "mountTmpfs", path: `${dir}/fixed`, options: "ro" });
    try {
      for (const recursive of [false, true])
        await apply(
          { kind: "remove", path: `${dir}/fixed/missing`, recursive },
          { kind: "remove", path: `${dir}/none/f` },
        );
    } finally {
      await unmount(`${dir}/fixed`);
    }
  });

  test("mounts a tmpfs between two changes, which the second one writes to", async (t) => {
    const dir = await folder();
    const { unmount } = current();
    if (!unmount) return t.skip("mounts are made in another namespace");
    await apply(
      { kind: "mkdir", path: `${dir}/memory` },
      { kind: "mountTmpfs", path: `${dir}/memory`, options: "size=4096" },
      { kind: "write", path: `${dir}/memory/f`, data: "in memory" },
    );
    assert.equal(await text(`${dir}/memory/f`), "in memory");
    assert.match(await text("/proc/self/mountinfo"), new RegExp(` ${dir}/memory .* - tmpfs tmpfs `));
    await unmount(`${dir}/memory`);
    assert.deepEqual(await names(`${dir}/memory`), []);
  });

  test("makes no further changes if a tmpfs cannot be mounted", async () => {
    const dir = await folder();
    const failed = apply(
      { kind: "mountTmpfs", path: `${dir}/missing`, options: "" },
      { kind: "write", path: `${dir}/f`, data: "" },
    );
    await assert.rejects(failed, { code: "failed_precondition" });
    assert.deepEqual(await names(dir), []);
  });
}
