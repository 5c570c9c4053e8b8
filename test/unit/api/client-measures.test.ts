import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { unmeasured } from "../../fakes/measures.ts";
import { connected } from "./connected-client.ts";

const { signal } = new AbortController();

test("counts bytes of request bodies, final responses and retries", async () => {
  const counted: string[] = [];
  const measures = {
    ...unmeasured.requests,
    sent: (method: string, _host: string, bytes: number) => void counted.push(`sent ${method} ${bytes}`),
    received: (method: string, _host: string, bytes: number) => void counted.push(`received ${method} ${bytes}`),
    repeated: (code: string, method: string) => void counted.push(`repeated ${method} ${code}`),
  };
  const answers: [number, string][] = [
    [429, "later"],
    [500, "still later"],
    [200, '"ü"'],
    [404, "gone"],
  ];
  await using t = await connected(
    createServer((request, response) => {
      const [status, body] = answers.shift() ?? assert.fail();
      request.resume();
      response.writeHead(status, status === 404 ? {} : { "retry-after": "0" }).end(body);
    }),
    {},
    "http",
    { measures },
  );
  const codes: string[] = [];
  await t.client.create("/a", { é: 1 }, { signal, answered: (code) => void codes.push(code) });
  await assert.rejects(t.client.get("/a", { signal }), { code: "not_found" });
  assert.deepEqual(codes, ["429", "500", "200"]);
  assert.deepEqual(counted, [
    "sent POST 8",
    "sent POST 8",
    "repeated POST 500",
    "sent POST 8",
    "repeated POST 200",
    "received POST 4",
    "sent GET 0",
    "received GET 4",
  ]);
});

test("measures how long requests wait for the rate limit", async () => {
  const delays: [string, string, number][] = [];
  const measures = {
    ...unmeasured.requests,
    delayed: (...delay: [string, string, number]) => void delays.push(delay),
  };
  const server = createServer((_, response) => response.end("{}"));
  await using t = await connected(server, {}, "http", { qps: 20, burst: 1, measures });
  // At once: a slow response to the first would give the second its token.
  await Promise.all(["/a", "/b"].map((path) => t.client.get(path, { signal })));
  const { port } = server.address() as AddressInfo;
  assert.deepEqual(
    delays.map(([method, host]) => `${method} ${host}`),
    Array.from({ length: 2 }, () => `GET 127.0.0.1:${port}`),
  );
  assert.ok((delays[0]?.[2] ?? 9) < (delays[1]?.[2] ?? 0), String(delays));
});
