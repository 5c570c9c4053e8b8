import assert from "node:assert/strict";
import { test } from "node:test";
import { PullImageRequest } from "../../src/gen/cri.ts";
import { type RuntimeUnderTest, emptySpec, patience } from "./runtime-pods.ts";

/** Images: pull, status, list, remove, room. */
export function imageContract(current: () => RuntimeUnderTest): void {
  test("pulls an image, finds it by name and reference, lists and removes it", async () => {
    const { runtime, image } = current();
    const reference = await runtime.pullImage(PullImageRequest.fromPartial({ image: { image } }), patience());
    const found = await runtime.imageStatus({ ...emptySpec, image }, patience());
    assert.ok(found);
    assert.match(found.id, /^sha256:[0-9a-f]{64}$/);
    assert.deepEqual(found.repoTags, [image]);
    assert.ok(found.size > 0n);
    assert.equal((await runtime.imageStatus({ ...emptySpec, image: reference }, patience()))?.id, found.id);
    assert.ok((await runtime.listImages(patience())).some(({ id }) => id === found.id));
    await runtime.removeImage({ ...emptySpec, image: found.id }, patience());
    assert.equal(await runtime.imageStatus({ ...emptySpec, image }, patience()), undefined);
    await runtime.removeImage({ ...emptySpec, image: found.id }, patience());
  });

  test("an unknown image is not_found on pull, and has no status", async () => {
    const { runtime, missingImage } = current();
    await assert.rejects(
      runtime.pullImage(PullImageRequest.fromPartial({ image: { image: missingImage } }), patience()),
      (error: Error) => {
        assert.equal("code" in error && error.code, "not_found");
        assert.ok(error.message.includes(missingImage), error.message);
        return true;
      },
    );
    assert.equal(await runtime.imageStatus({ ...emptySpec, image: missingImage }, patience()), undefined);
  });

  test("reports the image file system by mount point", async () => {
    const { imageFilesystems } = await current().runtime.imageFsInfo(patience());
    assert.ok(imageFilesystems[0]?.fsId?.mountpoint.startsWith("/"));
  });
}
