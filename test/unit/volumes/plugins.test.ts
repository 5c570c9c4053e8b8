import assert from "node:assert/strict";
import { test } from "node:test";
import { CodedError } from "../../../src/lib/errors.ts";
import type { Volume } from "../../../src/objects.ts";
import { downwardAPIContent } from "../../../src/volumes/plugins/downward-api.ts";
import { never } from "../../fakes/signals.ts";
import { directoryOf, failed, mounted, podWith, refusal, volumeBench } from "./volume-bench.ts";

test("hostPath: each type accepts its file kind", async () => {
  const bench = volumeBench();
  bench.host.files.put("/at/file");
  bench.host.files.put("/at/socket", { kind: "socket" });
  bench.host.files.put("/at/char", { kind: "characterDevice" });
  bench.host.files.put("/at/block", { kind: "blockDevice" });
  const types = {
    Directory: "/at",
    DirectoryOrCreate: "/new/deep",
    File: "/at/file",
    FileOrCreate: "/at/new",
    Socket: "/at/socket",
    CharDevice: "/at/char",
    BlockDevice: "/at/block",
  };
  for (const [type, path] of Object.entries({ ...types, "": "/not/there" })) {
    assert.deepEqual((await mounted(bench, [{ name: "v", hostPath: { path, type } }])).get("v"), {
      hostPath: path,
      readOnly: false,
    });
  }
  assert.deepEqual(
    [(await bench.host.fs.lstat("/new/deep")).mode, (await bench.host.fs.lstat("/at/new")).mode],
    [0o755, 0o644],
  );
  await assert.rejects(bench.host.fs.lstat("/not"), { code: "not_found" });
});

test("hostPath: keeps content and mode of a file or directory created concurrently, also behind a link", async () => {
  for (const [type, word, target] of [
    ["FileOrCreate", undefined, "victim"],
    ["FileOrCreate", "file", "nowhere"],
    ["DirectoryOrCreate", undefined, "folder"],
  ] as const) {
    const bench = volumeBench();
    const { files, fs } = bench.host;
    files.put("/at/victim", { data: "precious", mode: 0o600 });
    await fs.apply([{ kind: "mkdir", path: "/at/folder", mode: 0o700 }]);
    let swapped = false;
    files.onChange(async (change) => {
      if (swapped || !("path" in change) || change.path !== "/at/it") return;
      swapped = true;
      await fs.apply([{ kind: "symlink", path: "/at/it", target }]);
    });
    const volume = { name: "v", hostPath: { path: "/at/it", type } };
    if (word) assert.equal(await refusal(bench, volume), failed(`hostPath type check failed: /at/it is not a ${word}`));
    else await mounted(bench, [volume]);
    assert.ok(swapped);
    const modes = [(await fs.lstat("/at/victim")).mode, (await fs.lstat("/at/folder")).mode];
    assert.deepEqual([files.text("/at/victim"), ...modes], ["precious", 0o600, 0o700]);
    await assert.rejects(fs.lstat("/at/nowhere"), { code: "not_found" });
  }
});

test("hostPath: each type rejects other file kinds in the kubelet's words", async () => {
  const words = {
    Directory: "directory",
    DirectoryOrCreate: "directory",
    File: "file",
    FileOrCreate: "file",
    Socket: "socket file",
    CharDevice: "character device",
    BlockDevice: "block device",
  };
  for (const [type, word] of Object.entries(words)) {
    const bench = volumeBench();
    const path = "/at/it";
    bench.host.files.put(path, { kind: type.startsWith("Socket") ? "fifo" : "socket" });
    assert.equal(
      await refusal(bench, { name: "v", hostPath: { path, type } }),
      failed(`hostPath type check failed: ${path} is not a ${word}`),
    );
  }
  assert.equal(
    await refusal(volumeBench(), { name: "v", hostPath: { path: "/a/../b", type: "" } }),
    failed("invalid HostPath `/a/../b`: must not contain '..'"),
  );
  assert.equal(
    await refusal(volumeBench(), { name: "v", hostPath: { path: "/a", type: "Pipe" } }),
    failed("Pipe is an invalid volume type"),
  );
  assert.equal(
    await refusal(volumeBench(), { name: "v", hostPath: { path: "/a/b", type: "Directory" } }),
    failed("hostPath type check failed: /a/b is not a directory"),
  );
  assert.match(
    await refusal(volumeBench(), { name: "v", hostPath: { path: "/no/parent/file", type: "FileOrCreate" } }),
    /no such file or directory/,
  );
});

test("a ConfigMap is on disk, a Secret in memory, both read-only", async () => {
  const bench = volumeBench();
  bench.setConfigMap("m", { a: "map" });
  bench.setSecret("s", { b: "secret" });
  const volumes = await mounted(bench, [
    { name: "v", configMap: { name: "m", defaultMode: 0o600 } },
    { name: "w", secret: { secretName: "s", items: [{ key: "b", path: "deep/b", mode: 0o440 }] } },
  ]);
  assert.deepEqual([volumes.get("v")?.readOnly, volumes.get("w")?.readOnly], [true, true]);
  assert.equal(await bench.text(`${directoryOf("configmap")}/a`), "map");
  assert.equal((await bench.host.fs.stat(`${directoryOf("configmap")}/a`)).mode, 0o600);
  assert.equal(await bench.text(`${directoryOf("secret", "w")}/deep/b`), "secret");
  assert.equal((await bench.host.fs.stat(`${directoryOf("secret", "w")}/deep/b`)).mode, 0o440);
  assert.deepEqual(bench.host.files.mounted(), [{ path: directoryOf("secret", "w"), fsType: "tmpfs" }]);
});

test("optional objects may be missing; missing required objects are reported", async () => {
  const bench = volumeBench();
  await mounted(bench, [
    { name: "v", configMap: { name: "none", optional: true } },
    { name: "w", secret: { secretName: "none", optional: true } },
  ]);
  assert.equal(
    await refusal(volumeBench(), { name: "v", configMap: { name: "none" } }),
    failed('configmap "none" not found'),
  );
  assert.equal(
    await refusal(volumeBench(), { name: "v", secret: { secretName: "none" } }),
    failed('secret "none" not found'),
  );
});

test("creates mount points for volumes nested in a ConfigMap volume", async () => {
  const bench = volumeBench();
  bench.setConfigMap("m", { a: "1" });
  const volumeMounts = [
    { name: "v", mountPath: "/etc/app" },
    { name: "w", mountPath: "/etc/app/cache" },
  ];
  await mounted(
    bench,
    [
      { name: "v", configMap: { name: "m" } },
      { name: "w", emptyDir: {} },
    ],
    { containers: [{ name: "c", image: "i", volumeMounts }] },
  );
  assert.equal((await bench.host.fs.lstat(`${directoryOf("configmap")}/cache`)).kind, "directory");
});

test("projected sources share a directory; on equal paths the later one wins", async () => {
  const bench = volumeBench();
  bench.setConfigMap("m", { "ca.crt": "CA", same: "map" });
  bench.setSecret("s", { same: "secret" });
  const sources = [
    { configMap: { name: "m" } },
    { secret: { name: "s" } },
    { serviceAccountToken: { path: "token", expirationSeconds: 3607 } },
    {
      downwardAPI: {
        items: [
          { path: "info/labels", fieldRef: { fieldPath: "metadata.labels" } },
          { path: "info/cpu", mode: 0o400, resourceFieldRef: { containerName: "c", resource: "requests.cpu" } },
        ],
      },
    },
  ];
  await mounted(bench, [{ name: "v", projected: { sources, defaultMode: 0o640 } }], {}, { labels: { app: "web" } });
  const path = directoryOf("projected");
  assert.deepEqual(
    [await bench.text(`${path}/ca.crt`), await bench.text(`${path}/same`), await bench.text(`${path}/token`)],
    ["CA", "secret", "token-1"],
  );
  assert.deepEqual([await bench.text(`${path}/info/labels`), await bench.text(`${path}/info/cpu`)], ['app="web"', "0"]);
  assert.deepEqual(
    [(await bench.host.fs.stat(`${path}/token`)).mode, (await bench.host.fs.stat(`${path}/info/cpu`)).mode],
    [0o640, 0o400],
  );
  assert.deepEqual(bench.requests, [{ audience: "", expirationSeconds: 3607 }]);
});

test("a downwardAPI volume is in memory, and follows the pod's labels", async () => {
  const bench = volumeBench();
  const items = [
    { path: "labels", fieldRef: { fieldPath: "metadata.labels" } },
    { path: "of/a/tier", mode: 0o400, fieldRef: { fieldPath: "metadata.annotations['tier']" } },
    { path: "memory", resourceFieldRef: { containerName: "c", resource: "limits.memory", divisor: "1Mi" } },
  ];
  const volumes: Volume[] = [{ name: "v", downwardAPI: { items, defaultMode: 0o640 } }];
  const stage = bench.start();
  await stage.mount(podWith(volumes, {}, { labels: { app: "web" }, annotations: { tier: "back" } }), never);
  const path = directoryOf("downward-api");
  const shown = () => Promise.all(["labels", "of/a/tier", "memory"].map((name) => bench.text(`${path}/${name}`)));
  assert.deepEqual(await shown(), ['app="web"', "back", "1024"]);
  const modes = ["labels", "of/a/tier"].map(async (name) => (await bench.host.fs.stat(`${path}/${name}`)).mode);
  assert.deepEqual(await Promise.all(modes), [0o640, 0o400]);
  assert.deepEqual(stage.mounted("uid-1").get("v"), { hostPath: path, readOnly: true });
  assert.deepEqual(bench.host.files.mounted(), [{ path, fsType: "tmpfs" }]);
  await stage.mount(podWith(volumes, {}, { labels: { app: "shop" }, annotations: { tier: "front" } }), never);
  assert.deepEqual(await shown(), ['app="shop"', "front", "1024"]);
});

test("limits the total size when many items repeat one value", async () => {
  const bench = volumeBench();
  bench.setConfigMap("m", { large: "x".repeat(100_000) });
  const items = Array.from({ length: 1_000 }, (_, index) => ({ key: "large", path: `f${index}` }));
  assert.equal(
    await refusal(bench, { name: "v", configMap: { name: "m", items } }),
    failed(
      "its files total 100000000 bytes, more than 67108864: select fewer items, or split them over several volumes",
    ),
  );
  const fields = items.map(({ path }) => ({ path, fieldRef: { fieldPath: "metadata.annotations['large']" } }));
  const pod = podWith([], {}, { annotations: { large: "x".repeat(100_000) } });
  const content = downwardAPIContent({ allocatable: () => ({}) }, pod, fields, 0o644);
  assert.equal(new Set([...content.values()].map(({ data }) => data)).size, 1);
});

test("reports all errors of a downwardAPI volume at once, and writes no file outside it", async () => {
  const items = [
    { path: "cpu", resourceFieldRef: { containerName: "none", resource: "limits.cpu" } },
    { path: "../out", fieldRef: { fieldPath: "metadata.name" } },
    { path: "name", fieldRef: { fieldPath: "metadata.name" } },
  ];
  const bench = volumeBench();
  assert.equal(
    await refusal(bench, { name: "v", downwardAPI: { items } }),
    failed("[container none not found, invalid path: must not contain '..': ../out]"),
  );
  assert.deepEqual(bench.host.files.mounted(), []);
});

test("rejects projected sources with a file/directory conflict until they agree", async () => {
  const bench = volumeBench();
  bench.setConfigMap("m", { a: "file" });
  const sources = [
    { configMap: { name: "m" } },
    { downwardAPI: { items: [{ path: "a/name", fieldRef: { fieldPath: "metadata.name" } }] } },
  ];
  const volume = { name: "v", projected: { sources } };
  assert.equal(
    await refusal(bench, volume),
    failed("a is a file in one source and a directory in another, which contains a/name: change one of the paths"),
  );
  bench.setConfigMap("m", { b: "file" });
  await mounted(bench, [volume]);
  assert.deepEqual(
    [await bench.text(`${directoryOf("projected")}/b`), await bench.text(`${directoryOf("projected")}/a/name`)],
    ["file", "p"],
  );
});

test("a token belongs to the common user of all containers, if any", async () => {
  const sources = [{ serviceAccountToken: { path: "token", audience: "vault" } }];
  const container = (runAsUser?: number) => ({
    name: `c${runAsUser}`,
    image: "i",
    volumeMounts: [{ name: "v", mountPath: "/v" }],
    ...(runAsUser !== undefined && { securityContext: { runAsUser } }),
  });
  const cases: readonly (readonly [
    containers: readonly (number | undefined)[],
    podUser: number | undefined,
    owner: number,
    mode: number,
  ])[] = [
    [[1000, 1000], undefined, 1000, 0o600],
    [[1000, undefined], 1000, 1000, 0o600],
    [[1000, undefined], undefined, 0, 0o644],
    [[1000, 2000], undefined, 0, 0o644],
  ];
  for (const [users, runAsUser, owner, mode] of cases) {
    const bench = volumeBench();
    await mounted(bench, [{ name: "v", projected: { sources } }], {
      containers: users.map(container),
      ...(runAsUser !== undefined && { securityContext: { runAsUser } }),
    });
    const stat = await bench.host.fs.stat(`${directoryOf("projected")}/token`);
    assert.deepEqual([stat.uid, stat.mode], [owner, mode], users.join());
    assert.deepEqual(bench.requests, [{ audience: "vault", expirationSeconds: 3600 }]);
  }
});

test("reports all errors of a projected volume at once", async () => {
  const sources = [{ configMap: { name: "none" } }, { secret: { name: "none" } }];
  assert.equal(
    await refusal(volumeBench(), { name: "v", projected: { sources } }),
    failed('[configmap "none" not found, secret "none" not found]'),
  );
});

test("files of a pod with an fsGroup belong to that group, and follow its change", async () => {
  const bench = volumeBench();
  bench.setSecret("s", { key: "x" });
  const volume = { name: "v", secret: { secretName: "s", defaultMode: 0o400 } };
  const path = directoryOf("secret");
  for (const fsGroup of [2000, 3000]) {
    await mounted(bench, [volume], { securityContext: { fsGroup } });
    const [directory, file] = await Promise.all([bench.host.fs.lstat(path), bench.host.fs.stat(`${path}/key`)]);
    assert.deepEqual([directory.mode & 0o2777, directory.gid], [0o2777, fsGroup]);
    assert.deepEqual([file.mode, file.uid, file.gid], [0o440, 0, fsGroup]);
  }
});

test("trust anchors and certificates are files of the containers' user, and a missing certificate keeps the pod waiting", async () => {
  const bench = volumeBench();
  bench.trustAnchors = ({ name }) => `anchors of ${name}`;
  bench.credentials = (volume, index) => ({ key: `key ${volume} ${index}\n`, certificateChain: "chain\n" });
  const certificate = { signerName: "s/x", keyType: "ED25519" };
  const sources = [
    { clusterTrustBundle: { name: "b", path: "ca" } },
    { podCertificate: { ...certificate, credentialBundlePath: "both" } },
    { podCertificate: { ...certificate, keyPath: "key", certificateChainPath: "chain" } },
  ];
  const volume = { name: "v", projected: { sources } };
  await bench.start().mount(podWith([volume], { securityContext: { runAsUser: 7 } }), never);
  const at = (name: string) => `${directoryOf("projected")}/${name}`;
  const texts = await Promise.all(["ca", "both", "key", "chain"].map((name) => bench.text(at(name))));
  assert.deepEqual(texts, ["anchors of b", "key v 1\nchain\n", "key v 2\n", "chain\n"]);
  const { mode, uid } = await bench.host.fs.stat(at("key"));
  assert.deepEqual([mode, uid], [0o600, 7]);

  const waiting = volumeBench();
  waiting.credentials = () => {
    throw new CodedError("unavailable", "credential bundle is not issued yet");
  };
  assert.equal(await refusal(waiting, volume), failed("credential bundle is not issued yet"));
});
