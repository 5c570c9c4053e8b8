import assert from "node:assert/strict";
import { test } from "node:test";
import { dockerImages } from "../../../../../providers/docker/image/images.ts";
import { criImage } from "../../../../../providers/docker/image/inspect.ts";
import { ImageSpec } from "../../../../../src/gen/cri.ts";
import { CodedError } from "../../../../../src/lib/errors.ts";
import { type EngineAnswer, type EngineCall, fakeEngine } from "../engine.ts";

const { signal } = new AbortController();
const id = `sha256:${"a".repeat(64)}`;
const digest = `sha256:${"b".repeat(64)}`;
const inspected = {
  Id: id,
  RepoTags: ["pause:1", "busybox:1"],
  RepoDigests: [`busybox@${digest}`],
  Size: 42,
  Config: { User: "1000:50" },
};
const spec = (image: string) => ImageSpec.fromPartial({ image });

test("converts an image of the daemon to CRI", async () => {
  await using engine = await fakeEngine(() => ({ status: 200, body: inspected }));
  const image = await dockerImages(engine.parts).imageStatus(spec("busybox:1"), signal);
  assert.deepEqual(
    { ...image, uid: image?.uid?.value },
    {
      id,
      repoTags: ["docker.io/library/pause:1", "docker.io/library/busybox:1"],
      repoDigests: [`docker.io/library/busybox@${digest}`],
      size: 42n,
      uid: 1000n,
      username: "",
      spec: undefined,
      pinned: true,
    },
  );
  assert.equal(engine.calls[0]?.path, "/images/docker.io/library/busybox:1/json");
});

test("converts a user name, and an unset user", () => {
  const user = (User: string) =>
    criImage({ ...inspected, Config: { User } } as Parameters<typeof criImage>[0], new Set());
  assert.equal(user("nobody:nogroup").username, "nobody");
  assert.equal(user("nobody:nogroup").uid, undefined);
  assert.equal(user("0").uid?.value, 0n);
  assert.equal(user("").uid, undefined);
  assert.equal(user("").username, "");
});

test("lists an untagged image without names", async () => {
  const dangling = { Id: id, RepoTags: ["<none>:<none>"], RepoDigests: ["<none>@<none>"], Size: 1 };
  await using engine = await fakeEngine(() => ({ status: 200, body: [dangling, { ...dangling, RepoTags: null }] }));
  const images = await dockerImages(engine.parts).listImages(signal);
  assert.deepEqual(
    images.map(({ repoTags, repoDigests, pinned }) => ({ repoTags, repoDigests, pinned })),
    Array.from({ length: 2 }, () => ({ repoTags: [], repoDigests: [], pinned: false })),
  );
});

/** Responses to a removal, with the containers that `users` created from images. */
function removal(users: readonly object[]) {
  return ({ method, path }: EngineCall): EngineAnswer => {
    if (path === "/containers/json") return { status: 200, body: users };
    if (method === "GET") return { status: 200, body: inspected };
    return path.includes("@")
      ? { status: 404, body: { message: "gone with its last tag" } }
      : { status: 200, body: [] };
  };
}

test("requests the list once while the daemon reports changes", async () => {
  await using engine = await fakeEngine(() => ({ status: 200, body: [] }));
  const images = dockerImages(engine.parts);
  engine.parts.cache.start();
  for (let time = 0; time < 3; time += 1) await images.listImages(signal);
  assert.equal(engine.calls.length, 1);
  engine.parts.cache.invalidate();
  await images.listImages(signal);
  assert.equal(engine.calls.length, 2);
});

test("removes an image name by name, never by force; names that disappeared with another name are not a failure", async () => {
  await using engine = await fakeEngine(removal([{ Id: "c", ImageID: `sha256:${"c".repeat(64)}`, Names: ["/child"] }]));
  await dockerImages(engine.parts).removeImage(spec(id), signal);
  const deletions = engine.calls.filter(({ method }) => method === "DELETE");
  assert.deepEqual(
    deletions.map(({ path, query }) => `${path}?${query.toString()}`),
    [
      "/images/docker.io/library/pause:1?",
      "/images/docker.io/library/busybox:1?",
      `/images/docker.io/library/busybox@${digest}?`,
      `/images/${id}?`,
    ],
  );
});

test("keeps all names of an image used by any container", async () => {
  await using engine = await fakeEngine(removal([{ Id: "c", ImageID: id, Names: ["/theirs"] }]));
  await assert.rejects(dockerImages(engine.parts).removeImage(spec(id), signal), {
    code: "conflict",
    message: /theirs/,
  });
  assert.ok(engine.calls.every(({ method }) => method === "GET"));
});

test("a missing image has no status and counts as removed; an invalid name is rejected at once", async () => {
  await using engine = await fakeEngine(() => ({ status: 404, body: { message: "no such image" } }));
  const images = dockerImages(engine.parts);
  assert.equal(await images.imageStatus(spec("busybox:1"), signal), undefined);
  await images.removeImage(spec(id), signal);
  const asked = engine.calls.length;
  for (const name of ["", "Bad Name", "../x", "a?b"])
    await assert.rejects(images.imageStatus(spec(name), signal), { code: "invalid_argument" }, name);
  assert.equal(engine.calls.length, asked);
});

test("the image filesystem is the daemon's directory, with the usage of all layers", async () => {
  await using engine = await fakeEngine(({ path }) =>
    path === "/info"
      ? { status: 200, body: { DockerRootDir: "/data/docker" } }
      : { status: 200, body: { LayersSize: 99 } },
  );
  const images = dockerImages(engine.parts);
  for (let time = 0; time < 2; time++) {
    const { imageFilesystems, containerFilesystems } = await images.imageFsInfo(signal);
    assert.equal(imageFilesystems[0]?.fsId?.mountpoint, "/data/docker");
    assert.equal(imageFilesystems[0]?.usedBytes?.value, 99n);
    assert.equal(containerFilesystems[0]?.fsId?.mountpoint, "/data/docker");
  }
  assert.equal(engine.calls.filter(({ path }) => path === "/system/df").length, 1);
});

test("with containerd's image store, the image filesystem is containerd's directory, which is known from a sandbox", async () => {
  const layers = "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots";
  const sandbox = {
    Id: "s1",
    State: "running",
    Names: ["/k8s_POD_web_default_uid-1_0"],
    Labels: {},
  };
  let sandboxes: readonly object[] = [];
  await using engine = await fakeEngine(({ path }) => {
    if (path === "/info")
      return {
        status: 200,
        body: {
          ID: "e",
          DockerRootDir: "/data/docker",
          DriverStatus: [["driver-type", "io.containerd.snapshotter.v1"]],
        },
      };
    if (path === "/containers/json") return { status: 200, body: sandboxes };
    const labels = { "graftlet.dev/node": "n1", "io.kubernetes.docker.type": "podsandbox" };
    if (path === "/containers/s1/json")
      return { status: 200, body: { Id: "s1", State: { Pid: 77 }, Config: { Labels: labels } } };
    return { status: 200, body: { LayersSize: 99 } };
  });
  const { fs } = engine.parts.host;
  const mountpoint = async () => (await images.imageFsInfo(signal)).imageFilesystems[0]?.fsId?.mountpoint;
  const images = dockerImages(engine.parts);
  const layersAt = async () =>
    (await images.imageFsInfo(signal)).containerFilesystems.map(({ fsId }) => fsId?.mountpoint);
  assert.equal(await mountpoint(), "/data/docker");
  assert.deepEqual(await layersAt(), [undefined], "nothing shows yet where layers are");
  sandboxes = [sandbox];
  const refusing = () => Promise.reject(new CodedError("permission_denied", "mountinfo"));
  const refused = dockerImages({ ...engine.parts, host: { ...engine.parts.host, fs: { ...fs, readFile: refusing } } });
  for (const _ of [1, 2, 3]) await refused.imageFsInfo(signal);
  assert.equal(engine.calls.filter(({ path }) => path === "/containers/s1/json").length, 1, "a refusal is remembered");
  assert.equal(await mountpoint(), "/data/docker", "its mounts cannot be read");
  await fs.apply([
    { kind: "mkdir", path: "/proc/77", mode: 0o755 },
    {
      kind: "write",
      path: "/proc/77/mountinfo",
      data: [
        `900 800 0:71 / / rw,relatime - overlay overlay rw,lowerdir=${layers}/1/fs:${layers}/2/fs,upperdir=${layers}/7/fs,workdir=${layers}/7/work`,
        "901 900 0:72 / /proc rw - proc proc rw",
        "",
      ].join("\n"),
      mode: 0o444,
    },
  ]);
  assert.equal(await mountpoint(), "/var/lib/containerd");
  sandboxes = [];
  assert.equal(await mountpoint(), "/var/lib/containerd", "it is remembered");
  assert.deepEqual(await layersAt(), ["/var/lib/containerd"]);
});

test("ignores digests that containerd's image store lists among an image's tags", () => {
  const image = { ...inspected, RepoTags: [`busybox@${digest}`, "busybox:1"] } as Parameters<typeof criImage>[0];
  assert.deepEqual(criImage(image, new Set()).repoTags, ["docker.io/library/busybox:1"]);
});
