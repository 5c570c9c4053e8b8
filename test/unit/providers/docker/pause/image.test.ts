import assert from "node:assert/strict";
import { test } from "node:test";
import { localPauseImage } from "../../../../../providers/docker/config.ts";
import { createSandboxImage } from "../../../../../providers/docker/pause/image.ts";
import { type RawCall, rawEngine } from "../raw-engine.ts";

const { signal } = new AbortController();

/** A daemon with some images that can pull `pullable` and import anything. */
async function engineWith({
  images = [],
  pullable = [],
  architecture = "x86_64",
}: Partial<Record<"images" | "pullable", string[]>> & { architecture?: string }) {
  const present = new Set(images);
  const asked: string[] = [];
  const answer = async ({ method, path, query, request, response }: RawCall) => {
    for await (const chunk of request) assert.ok(chunk.length > 0);
    if (path === "/info") return response.end(JSON.stringify({ Architecture: architecture }));
    const image =
      query.get("repo") ?? (query.has("fromImage") ? `${query.get("fromImage")}:${query.get("tag")}` : undefined);
    if (image === undefined) {
      response.statusCode = present.has(path.slice("/images/".length, -"/json".length)) ? 200 : 404;
      return response.end(response.statusCode === 200 ? '{"Id":"sha256:1","Size":1}' : '{"message":"no such image"}');
    }
    asked.push(`${query.has("repo") ? "import" : "pull"} ${image}`);
    if (query.has("fromImage") && !pullable.includes(image)) {
      response.statusCode = 500;
      return response.end('{"message":"no route to registry"}');
    }
    assert.equal(method, "POST");
    present.add(image);
    return response.end('{"status":"done"}\n');
  };
  const engine = await rawEngine((call) => void answer(call), "registry.example/pause:3");
  return { engine, present, asked, ...createSandboxImage(engine.parts) };
}

test("uses the configured image if present, otherwise pulls it once for all callers", async () => {
  const there = await engineWith({ images: ["registry.example/pause:3"] });
  await using _ = there.engine;
  assert.equal(await there.ensure(signal), "registry.example/pause:3");
  assert.deepEqual(there.asked, []);
  const pulled = await engineWith({ pullable: ["registry.example/pause:3"] });
  await using __ = pulled.engine;
  const names = await Promise.all([pulled.ensure(signal), pulled.ensure(signal)]);
  assert.deepEqual(names, ["registry.example/pause:3", "registry.example/pause:3"]);
  assert.deepEqual(pulled.asked, ["pull registry.example/pause:3"]);
});

test("looks up the configured image once, and again only after it is reported missing", async () => {
  const { engine, present, asked, ensure, verify } = await engineWith({
    images: ["registry.example/pause:3"],
    pullable: ["registry.example/pause:3"],
  });
  await using _ = engine;
  await ensure(signal);
  assert.equal(await verify(signal), true);
  present.clear();
  await ensure(signal);
  assert.deepEqual(asked, [], "not looked for");
  assert.equal(await verify(signal), false);
  await ensure(signal);
  assert.deepEqual(asked, ["pull registry.example/pause:3"]);
});

test("if the pull fails, builds a local image and logs it once; the pull is not repeated", async () => {
  const { engine, present, asked, ensure } = await engineWith({});
  await using _ = engine;
  for (let time = 0; time < 3; time++) assert.equal(await ensure(signal), localPauseImage);
  assert.deepEqual(asked, ["pull registry.example/pause:3", `import ${localPauseImage}`]);
  assert.equal(engine.lines.filter((line) => line.includes("no route to registry")).length, 1);
  present.delete(localPauseImage);
  assert.equal(await ensure(signal), localPauseImage, "made again");
  present.add("registry.example/pause:3");
  assert.equal(await ensure(signal), "registry.example/pause:3", "loaded by hand meanwhile");
});

test("on an unsupported architecture, reports which image to load and asks the registry again", async () => {
  const { engine, asked, ensure } = await engineWith({ architecture: "riscv64" });
  await using _ = engine;
  for (let time = 0; time < 2; time++)
    await assert.rejects(ensure(signal), {
      code: "failed_precondition",
      message: /registry\.example\/pause:3 .*no route to registry.*riscv64.*docker load/,
    });
  assert.equal(asked.length, 2);
});

test("stops waiting for the sandbox image when the caller aborts", async () => {
  const engine = await rawEngine(({ path, response }) => {
    if (!path.endsWith("/json")) return;
    response.statusCode = 404;
    response.end('{"message":"no such image"}');
  });
  const stop = new AbortController();
  const waiting = createSandboxImage(engine.parts).ensure(stop.signal);
  await new Promise(setImmediate);
  stop.abort();
  await assert.rejects(waiting, { code: "cancelled" });
  await engine[Symbol.asyncDispose]();
});
