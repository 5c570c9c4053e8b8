import assert from "node:assert/strict";
import { test } from "node:test";
import { pull, registryAuth } from "../../../../../providers/docker/image/pull.ts";
import { AuthConfig } from "../../../../../src/gen/cri.ts";
import type { PullProgress } from "../../../../../src/seams/runtime.ts";
import { type RawCall, rawEngine } from "../raw-engine.ts";

const { signal } = new AbortController();
const image = "registry.example/app:1";

function refusing(status: number, message: string) {
  return ({ response }: RawCall) => {
    response.statusCode = status;
    response.end(JSON.stringify({ message }));
  };
}

test("pulls one tag, sends credentials only in a header, and reports progress", async () => {
  const asked: RawCall[] = [];
  await using engine = await rawEngine((call) => {
    asked.push(call);
    call.response.write('{"status":"Downloading","id":"a","progressDetail":{"current":1,"to');
    call.response.end('tal":4}}\n{"status":"Pull complete","id":"a"}\n');
  });
  const told: PullProgress[] = [];
  const auth = AuthConfig.fromPartial({ username: "u", password: "geheim" });
  await pull(engine.parts, { image, auth, onProgress: (progress) => told.push(progress) }, signal);
  const [call, ...more] = asked;
  assert.equal(more.length, 0);
  assert.equal(
    `${call?.method} ${call?.path}?${call?.query.toString()}`,
    "POST /images/create?fromImage=registry.example%2Fapp&tag=1",
  );
  const header = call?.request.headers["x-registry-auth"];
  assert.deepEqual(JSON.parse(Buffer.from(String(header), "base64url").toString()), {
    username: "u",
    password: "geheim",
  });
  assert.deepEqual(told, [
    { bytes: 1, totalBytes: 4, layers: 1, layersDone: 0 },
    { bytes: 4, totalBytes: 4, layers: 1, layersDone: 1 },
  ]);
  assert.ok(!engine.lines.join().includes("geheim"));
});

test("a digest takes precedence over a tag, and the default tag is latest", async () => {
  const queries: string[] = [];
  await using engine = await rawEngine(({ query, response }) => {
    queries.push(query.get("tag") ?? "");
    response.end();
  });
  const digest = `sha256:${"b".repeat(64)}`;
  for (const name of [`app:1@${digest}`, `app@${digest}`, "app"]) await pull(engine.parts, { image: name }, signal);
  assert.deepEqual(queries, [digest, digest, "latest"]);
});

test("an image that no registry has is not_found, and every failure names the image", async () => {
  const cases = [
    { answer: refusing(404, "manifest unknown"), code: "not_found", words: "manifest unknown" },
    { answer: refusing(500, "Get: connection refused"), code: "unknown", words: "connection refused" },
    {
      answer: ({ response }: RawCall) =>
        response.end('{"errorDetail":{"message":"toomanyrequests: later"},"error":"toomanyrequests: later"}\n'),
      code: "unknown",
      words: "toomanyrequests",
    },
    {
      answer: ({ response }: RawCall) => response.end('{"errorDetail":{"code":401,"message":"who?"},"error":"who?"}\n'),
      code: "unauthenticated",
      words: "who?",
    },
    {
      answer: ({ response }: RawCall) => {
        response.write('{"status":"Pulling fs layer","id":"a"}\n');
        setImmediate(() => response.destroy());
      },
      code: "unavailable",
      words: "no Docker Engine responds",
    },
  ];
  for (const { answer, code, words } of cases) {
    await using engine = await rawEngine(answer);
    await assert.rejects(pull(engine.parts, { image }, signal), (error: Error) => {
      assert.equal("code" in error && error.code, code);
      assert.ok(error.message.includes(words) && error.message.includes(image), error.message);
      return true;
    });
  }
});

test("aborting the signal aborts the pull in the daemon", async () => {
  const closed = Promise.withResolvers<void>();
  const stop = new AbortController();
  await using engine = await rawEngine(({ response }) => {
    response.on("close", () => closed.resolve());
    response.write('{"status":"Pulling fs layer","id":"a"}\n');
  });
  const pulled = pull(engine.parts, { image, onProgress: () => stop.abort() }, stop.signal);
  await assert.rejects(pulled, { code: "cancelled" });
  await closed.promise;
});

test("gives up on a registry that is silent for a minute, unless the pull waits for others", async () => {
  const begun = Promise.withResolvers<RawCall["response"]>();
  await using engine = await rawEngine(({ response }) => begun.resolve(response));
  const heard = { count: 0, next: Promise.withResolvers<void>() };
  const onProgress = () => {
    heard.count += 1;
    heard.next.resolve();
    heard.next = Promise.withResolvers();
  };
  const pulled = assert.rejects(pull(engine.parts, { image, onProgress }, signal), {
    code: "deadline_exceeded",
    message: `failed to pull image "${image}": the registry has sent nothing for 60 seconds`,
  });
  const response = await begun.promise;
  for (const status of ["Waiting", "Pulling fs layer"]) {
    const next = heard.next.promise;
    response.write(`${JSON.stringify({ status, id: "a" })}\n`);
    await next;
    await engine.clock.advance(status === "Waiting" ? 200_000 : 59_000);
  }
  assert.equal(heard.count, 2);
  await engine.clock.advance(61_000);
  await pulled;
});

test("sends credentials as padded URL-safe base64, from whichever CRI fields have them", () => {
  const fields = (auth: Parameters<typeof AuthConfig.fromPartial>[0]) => {
    const header = registryAuth(AuthConfig.fromPartial(auth))["X-Registry-Auth"];
    return header === undefined ? undefined : (JSON.parse(Buffer.from(header, "base64url").toString()) as unknown);
  };
  assert.equal(registryAuth(undefined)["X-Registry-Auth"], undefined);
  assert.equal(fields({}), undefined);
  assert.deepEqual(fields({ auth: Buffer.from("u:a:b").toString("base64") }), { username: "u", password: "a:b" });
  assert.deepEqual(fields({ identityToken: "t", serverAddress: "r" }), { identitytoken: "t", serveraddress: "r" });
  assert.deepEqual(fields({ registryToken: "t" }), { registrytoken: "t" });
  const header = registryAuth(AuthConfig.fromPartial({ username: "ÿþ?>ü", password: "¿" }))["X-Registry-Auth"] ?? "";
  assert.match(header, /^[\w-]+={0,2}$/);
  assert.equal(header.length % 4, 0);
});
