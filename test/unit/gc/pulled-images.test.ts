import assert from "node:assert/strict";
import { test } from "node:test";
import { type PulledImages, createPulledImages } from "../../../src/gc/pulled-images.ts";
import { Image, type ImageSpec, PullImageRequest } from "../../../src/gen/cri.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { silentLog } from "../../../src/lib/log.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeHost } from "../../fakes/host.ts";
import { never } from "../../fakes/signals.ts";

/** A shared runtime: image names, and what a pull of each name would bring. */
function rig() {
  const clock = fakeClock();
  const host = fakeHost({ clock });
  host.files.put("/root/graftlet/node.json");
  const names = new Map<string, string>();
  const offered = new Map<string, string>();
  /** Gives an image a name. */
  const name = (what: string, id: string) => void names.set(`t.test/${what}`, id);
  const images = (): Image[] =>
    [...new Set(names.values())].map((id) => {
      const all = [...names].flatMap(([each, of]) => (of === id ? [each] : []));
      return Image.fromPartial({
        id,
        repoTags: all.filter((each) => !each.includes("@")),
        repoDigests: all.filter((each) => each.includes("@")),
      });
    });
  const image = (id: string) => images().find((one) => one.id === id) ?? Image.fromPartial({ id });
  const hex = (id: string) => `sha256:${Buffer.from(id).toString("hex").padEnd(64, "0")}`;
  const runtime = {
    listImages: async () => images(),
    imageStatus: async ({ image: wanted }: ImageSpec) =>
      images().find(({ repoTags, repoDigests }) => [...repoTags, ...repoDigests].includes(wanted)),
    async pullImage(request: PullImageRequest): Promise<string> {
      const wanted = request.image?.image ?? "";
      const id = offered.get(wanted);
      if (id === undefined) throw new CodedError("not_found", "no such image");
      names.set(wanted, id);
      names.set(`${wanted.replace(/[@:][^/]*$/, "")}@${hex(id)}`, id);
      return id;
    },
  };
  const node = () =>
    createPulledImages({
      runtime,
      fs: host.fs,
      rootDir: "/root",
      clock,
      log: silentLog(),
    });
  /** Pulls a name, which brings that image. */
  const pull = (by: PulledImages, what: string, id: string) => {
    offered.set(`t.test/${what}`, id);
    const request = PullImageRequest.fromPartial({ image: { image: `t.test/${what}` } });
    return by.images.pullImage(request, never);
  };
  const settle = async (by: PulledImages) => {
    await clock.advance(1);
    await by.reconcile(images(), clock.monotonic(), never);
  };
  const isOwn = (by: PulledImages, id: string) => by.namesOf(image(id)) !== undefined;
  return { host, names, name, image, hex, runtime, node, pull, settle, isOwn };
}

test("after a pull, owns the image with all names that the pull added, even after a restart", async () => {
  const { node, pull, settle, isOwn, image, hex, host } = rig();
  const first = node();
  await pull(first, "app:1", "A");
  const names = ["t.test/app:1", `t.test/app@${hex("A")}`];
  assert.deepEqual(first.namesOf(image("A")), names);
  const second = node();
  assert.equal(isOwn(second, "A"), false, "not known before the record was read");
  await settle(second);
  assert.deepEqual(second.namesOf(image("A")), names);
  assert.deepEqual(host.files.tree("/root/graftlet"), ["/root/graftlet/images.json", "/root/graftlet/node.json"]);
});

test("does not own an image that existed before under a name in the pull, or has another name", async () => {
  const { node, name, pull, settle, isOwn, hex } = rig();
  const ours = node();
  name("theirs:1", "A");
  await pull(ours, "theirs:1", "A");
  assert.equal(isOwn(ours, "A"), false, "they had that name");
  await pull(ours, "theirs:1", "A2");
  assert.equal(isOwn(ours, "A2"), false, "the name is theirs, whatever it stands for now");
  name(`by-digest@${hex("B")}`, "B");
  await pull(ours, "by-digest:1", "B");
  assert.equal(isOwn(ours, "B"), false, "they had pulled the digest");
  name("base:1", "C");
  await pull(ours, "copy:1", "C");
  assert.equal(isOwn(ours, "C"), false, "the same image by another name");
  await pull(ours, "app:1", "D");
  assert.equal(isOwn(ours, "D"), true);
  name("backup/app:1", "D");
  await settle(ours);
  assert.equal(isOwn(ours, "D"), false, "somebody has given it a name");
});

test("no longer owns a name that others moved to another image", async () => {
  const { node, name, names, pull, settle, isOwn, hex } = rig();
  const ours = node();
  await pull(ours, "app:1", "A");
  name("app:1", "B");
  await settle(ours);
  assert.equal(isOwn(ours, "B"), false);
  assert.equal(isOwn(ours, "A"), true, "its digest is all that is left of ours");
  names.delete(`t.test/app@${hex("A")}`);
  await settle(ours);
  name(`app@${hex("A")}`, "A");
  assert.equal(isOwn(ours, "A"), false, "gone and pulled again by others");
});

test("when a pull moves a tag, owns the new image by tag and the old image by digest", async () => {
  const { node, pull, settle, isOwn } = rig();
  const ours = node();
  await pull(ours, "app:1", "A");
  await pull(ours, "app:1", "B");
  await settle(ours);
  assert.deepEqual([isOwn(ours, "A"), isOwn(ours, "B")], [true, true]);
});

test("owns an image whose pull was interrupted by a restart; keeps no record of a pull that added no image", async () => {
  const { node, name, pull, runtime, settle, isOwn, hex, host } = rig();
  const killed = node();
  const answer = runtime.pullImage;
  runtime.pullImage = () => Promise.withResolvers<string>().promise;
  name(`app@${hex("X")}`, "X");
  void pull(killed, "app:1", "A");
  void pull(killed, "never:1", "N");
  for (let turn = 0; turn < 5; turn++) await new Promise(setImmediate);
  name("app:1", "A");
  name(`app@${hex("A")}`, "A");
  await settle(killed);
  assert.equal(isOwn(killed, "A"), false, "the pull is still under way");
  runtime.pullImage = answer;
  const next = node();
  await settle(next);
  assert.deepEqual([isOwn(next, "A"), isOwn(next, "X")], [true, false]);
  assert.deepEqual(JSON.parse(host.files.text("/root/graftlet/images.json")), {
    version: 1,
    pulled: { "t.test/app:1": "A", [`t.test/app@${hex("A")}`]: "A" },
    begun: {},
  });
});

test("if the record cannot be read or written, pulls still succeed, but their images are not removed", async () => {
  const { node, pull, settle, isOwn, host } = rig();
  host.files.onChange(() => {
    throw new CodedError("resource_exhausted", "no space left on device");
  });
  const full = node();
  assert.equal(await pull(full, "app:1", "A"), "A");
  assert.equal(isOwn(full, "A"), false);
  host.files.onChange(undefined);
  host.files.put("/root/graftlet/images.json", { data: '{"version":1,"pul' });
  const torn = node();
  await settle(torn);
  assert.equal(isOwn(torn, "A"), false);
  assert.ok(host.files.tree("/root/graftlet").includes("/root/graftlet/images.json.torn"));
});
