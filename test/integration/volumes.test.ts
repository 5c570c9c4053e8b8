import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { type Lab, startLab } from "../harness/lab.ts";
import { configMap, mount, mounts, secret } from "../harness/manifests.ts";
import { volumeFolder } from "../harness/pod-machine.ts";
import { shell, statusOf } from "../harness/pods.ts";
import { shown, volumesLab, waitsForVolume } from "../harness/volumes.ts";

let lab: Lab;
let folder: string;
before(async () => {
  lab = await startLab("volumes", volumesLab);
  folder = join(lab.cluster.layout.dir, "host");
  mkdirSync(folder);
});
after(() => lab?.[Symbol.asyncDispose]());

describe("emptyDir volumes, hostPath volumes and fsGroup", { concurrency: 4 }, () => {
  test("emptyDir: is shared by the pod's containers, on disk or in memory, for the life of the pod", async () => {
    const { pods, cluster } = lab;
    const volumes = [
      { name: "disk", emptyDir: {} },
      { name: "memory", emptyDir: { medium: "Memory", sizeLimit: "16Mi" } },
    ];
    const writer = shell(
      "echo one >> /memory/lines; echo one >> /disk/lines; test $(wc -l < /disk/lines) -ge 2 && exec sleep infinity; exit 1",
      { name: "writer", volumeMounts: mounts(volumes) },
    );
    const reader = shell(
      "until grep -c one /disk/lines 2>/dev/null | grep -q 2; do sleep 0.1; done; cat /disk/lines /memory/lines; stat -c %a /disk /memory; df -m /memory | tail -n 1; exec sleep infinity",
      { volumeMounts: mounts(volumes) },
    );
    await pods.create("shared", { volumes, containers: [reader, writer] });
    const pod = await pods.until(
      "shared",
      "the writer's second run",
      (one) => statusOf(one, "writer")?.restartCount === 1 && statusOf(one, "writer")?.state?.running !== undefined,
    );
    await cluster.waitFor(
      "what the reader saw",
      async () => (
        assert.match(await pods.log("shared", "container=main"), /^one\none\none\none\n777\n1777\ntmpfs +16 /), true
      ),
    );
    const folders = [
      volumeFolder(cluster, pod, "empty-dir", "disk"),
      volumeFolder(cluster, pod, "empty-dir", "memory"),
    ];
    assert.ok(folders.every(existsSync));
    const gone = pods.gone("shared", () => folders.filter(existsSync));
    await pods.remove("shared");
    assert.deepEqual((await gone).found, []);
  });

  test("fsGroup: the pod's group owns volumes, reads all of them and writes the emptyDirs", async () => {
    const { cluster, pods } = lab;
    await cluster.apply([configMap("grouped", { key: "value" }), secret("grouped", { key: "value" })]);
    const volumes = [
      { name: "disk", emptyDir: {} },
      { name: "memory", emptyDir: { medium: "Memory" } },
      { name: "map", configMap: { name: "grouped", defaultMode: 0o600, items: [{ key: "key", path: "deep/key" }] } },
      { name: "secret", secret: { secretName: "grouped", defaultMode: 0o400 } },
      { name: "token", projected: { sources: [{ serviceAccountToken: { path: "token" } }] } },
    ];
    const files = "/disk /disk/new /memory /map/..data /map/deep /map/deep/key /secret/key /token/token";
    const script = `id; for file in /disk/new /memory/new; do echo > $file || exit 1; done; cat /map/deep/key /secret/key /token/token > /dev/null && stat -L -c '%n %a %u:%g' ${files}`;
    const container = (user: object) => shell(script, { volumeMounts: mounts(volumes), securityContext: user });
    const seen = async (name: string, user: object) =>
      await pods.output(name, container(user), {
        volumes,
        // What the node makes for a pod has its group from the start: there is nothing to leave out.
        securityContext: { fsGroup: 2000, fsGroupChangePolicy: "OnRootMismatch" },
      });
    const rights = (owner: number) =>
      [
        "/disk 2777 0:2000",
        `/disk/new 644 ${owner}:2000`,
        "/memory 3777 0:2000",
        "/map/..data 2755 0:2000",
        "/map/deep 2755 0:2000",
        "/map/deep/key 640 0:2000",
        "/secret/key 440 0:2000",
        `/token/token 640 ${owner}:2000`,
      ].join("\n");
    const told = await seen("grouped", { runAsUser: 1000, runAsGroup: 3000 });
    assert.match(told, /^uid=1000.* gid=3000.* groups=.*\b2000\b/);
    assert.equal(told.trimEnd().split("\n").slice(1).join("\n"), rights(1000));
  });

  test("hostPath: mounts paths of each type", async () => {
    writeFileSync(join(folder, "file"), "content\n");
    mkdirSync(join(folder, "directory"));
    const server = createServer().listen(join(folder, "socket"));
    try {
      const hostPath = (name: string, path: string, type: string) => ({ name, hostPath: { path, type } });
      const text = await shown(
        lab.pods,
        "host-paths",
        [
          hostPath("any", join(folder, "file"), ""),
          hostPath("directory", join(folder, "directory"), "Directory"),
          hostPath("made-directory", join(folder, "made/deep"), "DirectoryOrCreate"),
          hostPath("file", join(folder, "file"), "File"),
          hostPath("made-file", join(folder, "new-file"), "FileOrCreate"),
          hostPath("socket", join(folder, "socket"), "Socket"),
          hostPath("device", "/dev/null", "CharDevice"),
        ],
        "cd /; stat -c '%n %F' any directory made-directory file made-file socket device; cat file; echo written > made-file; echo more > made-directory/more",
      );
      assert.equal(
        text,
        "any regular file\ndirectory directory\nmade-directory directory\nfile regular file\nmade-file regular empty file\nsocket socket\ndevice character special file\ncontent\n",
      );
      assert.equal(readFileSync(join(folder, "new-file"), "utf8"), "written\n");
      assert.equal(readFileSync(join(folder, "made/deep/more"), "utf8"), "more\n");
      assert.deepEqual(
        [statSync(join(folder, "new-file")).mode & 0o777, statSync(join(folder, "made/deep")).mode & 0o777],
        [0o644, 0o755],
      );
    } finally {
      server.close();
    }
  });

  test("hostPath: a path of another type keeps the pod waiting until it matches", async () => {
    const plain = join(folder, "plain");
    writeFileSync(plain, "");
    const wrong = {
      Directory: "directory",
      DirectoryOrCreate: "directory",
      Socket: "socket file",
      CharDevice: "character device",
      BlockDevice: "block device",
    };
    await Promise.all(
      Object.entries(wrong).map(([type, kind]) =>
        waitsForVolume(
          lab.pods,
          `wrong-${type.toLowerCase()}`,
          { name: "host", hostPath: { path: plain, type } },
          `hostPath type check failed: ${plain} is not a ${kind}`,
        ),
      ),
    );
    for (const type of ["File", "FileOrCreate"])
      await waitsForVolume(
        lab.pods,
        `wrong-${type.toLowerCase()}`,
        { name: "host", hostPath: { path: folder, type } },
        `hostPath type check failed: ${folder} is not a file`,
      );
    const dangling = join(folder, "dangling");
    symlinkSync(join(folder, "made-through-a-link"), dangling);
    await waitsForVolume(
      lab.pods,
      "wrong-dangling",
      { name: "host", hostPath: { path: dangling, type: "FileOrCreate" } },
      `hostPath type check failed: ${dangling} is not a file`,
    );
    assert.ok(!existsSync(join(folder, "made-through-a-link")));
    rmSync(plain);
    mkdirSync(plain);
    await lab.pods.ready("wrong-directory");
  });

  test("rejects writes to a read-only mount and to volumes of API objects", async () => {
    const { cluster, pods } = lab;
    await cluster.apply([configMap("fixed", { key: "value" }), secret("fixed", { key: "value" })]);
    mkdirSync(join(folder, "kept"));
    const volumes = [
      { name: "host", hostPath: { path: join(folder, "kept") } },
      { name: "empty", emptyDir: {} },
      { name: "map", configMap: { name: "fixed" } },
      { name: "secret", secret: { secretName: "fixed" } },
    ];
    const volumeMounts = [
      mount("host", { readOnly: true }),
      mount("empty", { readOnly: true }),
      mount("map"),
      mount("secret"),
    ];
    const script = "for dir in host empty map secret; do touch /$dir/new 2>&1; done; true";
    const text = await pods.output("read-only", shell(script, { volumeMounts }), { volumes });
    assert.equal(
      text,
      ["host", "empty", "map", "secret"].map((name) => `touch: /${name}/new: Read-only file system\n`).join(""),
    );
    const shownMounts = statusOf(pods.history("read-only").at(-1) ?? assert.fail())?.volumeMounts;
    assert.deepEqual(
      shownMounts?.filter(({ name }) => name === "host" || name === "empty"),
      [
        { name: "host", mountPath: "/host", readOnly: true, recursiveReadOnly: "Disabled" },
        { name: "empty", mountPath: "/empty", readOnly: true, recursiveReadOnly: "Disabled" },
      ],
    );
  });
});
