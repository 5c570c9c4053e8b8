import assert from "node:assert/strict";
import { type IncomingMessage, type RequestListener, type Server, type ServerResponse, createServer } from "node:http";
import { createServer as createHttps } from "node:https";
import { type Socket, createServer as createTcp } from "node:net";
import { type TestContext, test } from "node:test";
import { createServer as createTls } from "node:tls";
import { messageOf } from "../../../src/lib/errors.ts";
import { requestUri, urlText } from "../../../src/lib/go-url.ts";
import { type HttpGet, httpActionRequest } from "../../../src/pod/http-action.ts";
import { probeHttp } from "../../../src/probes/attempt.ts";
import { selfSigned } from "../../fakes/certificate.ts";
import { freePort, listen } from "../../harness/ports.ts";
import { loopbackHost } from "./loopback.ts";

const podIP = "10.0.0.7";
const patience = (): AbortSignal => AbortSignal.timeout(5000);

async function serve(t: TestContext, handle: RequestListener): Promise<number> {
  const server: Server = createServer(handle);
  t.after(() => server.closeAllConnections());
  t.after(() => server.close());
  return listen(server);
}

function probe(port: number, action: Partial<HttpGet> = {}) {
  return probeHttp(loopbackHost(), httpActionRequest({ port, ...action }, podIP, port, "probe"), patience());
}

test("status 200 to 399 is a success; anything else fails with the code and without the body", async (t) => {
  const port = await serve(
    t,
    (request, response) => void response.writeHead(Number(request.url?.slice(1))).end("the body"),
  );
  assert.deepEqual(await probe(port, { path: "/200" }), { kind: "success", output: "the body" });
  assert.deepEqual(await probe(port, { path: "/299" }), { kind: "success", output: "the body" });
  for (const code of [400, 404, 500, 503])
    assert.deepEqual(await probe(port, { path: `/${code}` }), {
      kind: "failure",
      output: `HTTP probe failed with statuscode: ${code}`,
    });
  assert.deepEqual(await probe(port, { path: "/304" }), {
    kind: "warning",
    output: "Probe terminated redirects, Response body: ",
  });
});

test("sends the kubelet's request on a connection that is closed afterwards", async (t) => {
  const seen: IncomingMessage[] = [];
  const port = await serve(t, (request, response) => {
    seen.push(request);
    response.end();
  });
  const host = loopbackHost();
  await probeHttp(host, httpActionRequest({ port, path: "/healthz?full=1" }, podIP, port, "probe"), patience());
  assert.equal(seen[0]?.method, "GET");
  assert.equal(seen[0].url, "/healthz?full=1");
  assert.deepEqual(seen[0].headers, {
    "user-agent": "kube-probe/1.36",
    accept: "*/*",
    host: `${podIP}:${port}`,
    connection: "close",
  });
  assert.deepEqual(host.dialled, [{ host: podIP, port }]);
});

test("probe headers: duplicates are kept, empty User-Agent and Accept are omitted, Host is honoured", async (t) => {
  const seen: IncomingMessage[] = [];
  const port = await serve(t, (request, response) => {
    seen.push(request);
    response.end();
  });
  const httpHeaders = [
    ["X-One", "1"],
    ["x-one", "2"],
    ["user-agent", ""],
    ["Accept", ""],
    ["host", "example.com"],
  ].map(([name = "", value = ""]) => ({ name, value }));
  await probe(port, { httpHeaders });
  assert.deepEqual(
    { ...seen[0]?.headersDistinct },
    { "x-one": ["1", "2"], host: ["example.com"], connection: ["close"] },
  );
  await probe(port, {
    httpHeaders: [
      { name: "User-Agent", value: "mine" },
      { name: "accept", value: "text/plain" },
    ],
  });
  assert.deepEqual(
    { agent: seen[1]?.headers["user-agent"], accept: seen[1]?.headers.accept },
    { agent: "mine", accept: "text/plain" },
  );
});

test("builds the request line from the path", () => {
  const target = (path?: string) =>
    requestUri(httpActionRequest({ port: 80, ...(path !== undefined && { path }) }, podIP, 80, "probe").url);
  assert.equal(target(undefined), "/");
  assert.equal(target(""), "/");
  assert.equal(target("healthz"), "/healthz");
  assert.equal(target("/a/../b"), "/a/../b");
  assert.equal(target("/a b?c=d e#f"), "/a%20b?c=d e");
  assert.equal(target("/%2e%zz?x"), "/%252e%25zz%3Fx");
  assert.equal(target("/ä%20"), "/%C3%A4%20");
  assert.equal(target("http://elsewhere/x?y"), "/x?y");
  assert.equal(
    urlText(httpActionRequest({ port: 80, scheme: "HTTPS", path: "x" }, "fd00::1", 80, "probe").url),
    "https://[fd00::1]:80/x",
  );
});

test("follows redirects on the same host, warns on other hosts, stops after ten", async (t) => {
  const paths: string[] = [];
  const port = await serve(t, (request: IncomingMessage, response: ServerResponse) => {
    const path = request.url ?? "";
    paths.push(`${request.headers.host} ${path}`);
    if (path === "/local") response.writeHead(302, { location: "/target?x=1" }).end();
    else if (path === "/absolute") response.writeHead(301, { location: `http://${podIP}:${port}/target` }).end();
    else if (path === "/away") response.writeHead(307, { location: "http://elsewhere.example/" }).end("go away");
    else if (path === "/nowhere") response.writeHead(302).end("no location");
    else if (path === "/loop") response.writeHead(302, { location: "/loop" }).end();
    else response.end("here");
  });
  assert.deepEqual(await probe(port, { path: "/local" }), { kind: "success", output: "here" });
  assert.deepEqual(paths.splice(0), [`${podIP}:${port} /local`, `${podIP}:${port} /target?x=1`]);
  await probe(port, { path: "/local", httpHeaders: [{ name: "Host", value: "mine" }] });
  await probe(port, { path: "/absolute", httpHeaders: [{ name: "Host", value: "mine" }] });
  assert.deepEqual(paths.splice(0), ["mine /local", "mine /target?x=1", "mine /absolute", `${podIP}:${port} /target`]);
  assert.deepEqual(await probe(port, { path: "/away" }), {
    kind: "warning",
    output: "Probe terminated redirects, Response body: go away",
  });
  assert.deepEqual(await probe(port, { path: "/nowhere" }), {
    kind: "warning",
    output: "Probe terminated redirects, Response body: no location",
  });
  paths.length = 0;
  assert.deepEqual(await probe(port, { path: "/loop" }), {
    kind: "failure",
    output: `Get "/loop": stopped after 10 redirects`,
  });
  assert.equal(paths.length, 10);
});

test("reads at most 10 KiB of the body", async (t) => {
  const port = await serve(t, (_request, response) => {
    const more = () => {
      while (response.write(Buffer.alloc(4096, "x")));
    };
    response.on("drain", more);
    more();
  });
  const outcome = await probe(port);
  assert.equal(outcome.kind, "success");
  assert.equal("output" in outcome && outcome.output.length, 10240);
});

test("probe errors use Go's wording", async (t) => {
  const closed = await freePort();
  assert.deepEqual(await probe(closed, { path: "/x" }), {
    kind: "failure",
    output: `Get "http://${podIP}:${closed}/x": dial tcp ${podIP}:${closed}: connect: connection refused`,
  });

  const silent = await serve(t, () => {});
  const stop = new AbortController();
  const waiting = probeHttp(loopbackHost(), httpActionRequest({ port: silent }, podIP, silent, "probe"), stop.signal);
  setTimeout(() => stop.abort(), 50);
  assert.deepEqual(await waiting, {
    kind: "failure",
    output: `Get "http://${podIP}:${silent}": context deadline exceeded (Client.Timeout exceeded while awaiting headers)`,
  });

  const hangsUp = createTcp((socket) => void socket.once("data", () => socket.end()));
  t.after(() => hangsUp.close());
  const port = await listen(hangsUp);
  assert.deepEqual(await probe(port), { kind: "failure", output: `Get "http://${podIP}:${port}": EOF` });
});

test("a response that ends in the middle of its body is an error, not a failure", async (t) => {
  const port = await serve(t, (_request, response) => {
    response.writeHead(200, { "content-length": "100" });
    response.write("part");
    setTimeout(() => response.destroy(), 20);
  });
  const outcome = await probe(port);
  assert.equal(outcome.kind, "error");
  assert.equal("state" in outcome && outcome.state, "failure");
});

const switching = "HTTP/1.1 101 Switching Protocols\r\n";
const upgrade = "Connection: Upgrade\r\nUpgrade: x\r\n";

/** A server that sends one response to every client and keeps the connection open. @param secure speaks TLS. @param closes ends the
 *  connection. */
async function say(t: TestContext, answer: string, secure = false, closes = false): Promise<number> {
  const talk = (socket: Socket) => {
    t.after(() => socket.destroy());
    socket
      .on("error", () => {})
      .once("data", () => {
        socket.write(answer, "latin1");
        if (closes) socket.end();
      });
  };
  const server = secure ? createTls(selfSigned("any"), talk) : createTcp(talk);
  t.after(() => server.close());
  return listen(server);
}

for (const scheme of ["HTTP", "HTTPS"] as const)
  test(`${scheme}: an unrequested protocol switch counts as status 101`, async (t) => {
    for (const answer of [`${switching}${upgrade}\r\n`, `${switching}\r\n`])
      assert.deepEqual(await probe(await say(t, answer, scheme === "HTTPS"), { scheme }), {
        kind: "failure",
        output: "HTTP probe failed with statuscode: 101",
      });
  });

for (const scheme of ["HTTP", "HTTPS"] as const)
  test(`${scheme}: the timeout ends a probe no matter what the server has sent`, async (t) => {
    const halfway = ["", "HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart"];
    for (const answer of halfway) {
      const port = await say(t, answer, scheme === "HTTPS");
      const action = httpActionRequest({ port, scheme }, podIP, port, "probe");
      const outcome = await probeHttp(loopbackHost(), action, AbortSignal.timeout(200));
      const said = "error" in outcome ? messageOf(outcome.error) : "output" in outcome ? outcome.output : "";
      assert.match(said, /context deadline exceeded/, answer);
    }
  });

test("accepts non-standard responses that Go's client accepts", async (t) => {
  for (const answer of [
    "HTTP/1.1 200 OK\n\nok",
    "HTTP/1.0 200 OK\nContent-Type: text/plain\n\nok",
    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nContent-Length: 12\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nServer : odd\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.1 200\r\nContent-Length:\r\n 2\r\n\r\nok",
    "HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
  ])
    assert.deepEqual(await probe(await say(t, answer, false, true)), { kind: "success", output: "ok" }, answer);
});

test("rejects responses that Go's client rejects, with its error texts", async (t) => {
  const broken = "net/http: HTTP/1.x transport connection broken: ";
  for (const [answer, why] of [
    ["\x15\x03\x01\x00\x02\x02", `${broken}malformed HTTP response "\\x15\\x03\\x01\\x00\\x02\\x02"`],
    ["HTTP/1.1 2x0 OK\r\n\r\n", `${broken}malformed HTTP status code "2x0"`],
    ["HTTP/1.1 200 OK\r\nA\r\n\r\n", `${broken}malformed MIME header: missing colon: "A"`],
    ["HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", `${broken}bad Content-Length "-1"`],
    ["HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", `${broken}unsupported transfer encoding: "gzip"`],
    ["HTTP/1.1 200 OK\r\nA: b\r\n", `${broken}unexpected EOF`],
  ] as const) {
    const port = await say(t, answer, false, true);
    assert.deepEqual(await probe(port), { kind: "failure", output: `Get "http://${podIP}:${port}": ${why}` });
  }
});

test("more than 1 MiB of headers fail a probe, without blocking the event loop", async (t) => {
  const tiny = `HTTP/1.1 200 OK\r\n${"a:\n".repeat(400_000)}`;
  for (const answer of [tiny, `HTTP/1.1 200 OK\r\nA: ${"b".repeat(2 ** 21)}`, "x".repeat(2 ** 21)]) {
    const port = await say(t, answer);
    let longest = 0;
    let last = performance.now();
    const beat = setInterval(() => {
      longest = Math.max(longest, performance.now() - last);
      last = performance.now();
    }, 1);
    const outcome = await probe(port);
    clearInterval(beat);
    assert.match(
      "output" in outcome ? outcome.output : "",
      /net\/http: server response headers exceeded 1048576 bytes; aborted$/,
    );
    assert.ok(longest < 500, `${longest} ms`);
  }
});

test("https probes accept any certificate", async (t) => {
  const server = createHttps(selfSigned("any"), (_request, response) => response.end("safe"));
  t.after(() => server.close());
  const port = await listen(server);
  assert.deepEqual(await probe(port, { scheme: "HTTPS" }), { kind: "success", output: "safe" });
  const plain = await probe(port, { scheme: "HTTP" });
  assert.notEqual(plain.kind, "success");
});
