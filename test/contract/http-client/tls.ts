import { type HttpCase, headersOf, shown } from "./case.ts";

/** TLS and HTTP/2. */
export function tlsCases(): HttpCase[] {
  const answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
  const https = { action: { scheme: "HTTPS" } };
  const tls = (name: string, options: object): HttpCase[] => [
    { name: `TLS: ${name}`, server: { answer, tls: options }, ...https },
    { name: `hook: TLS: ${name}`, kind: "hook", server: { answer, tls: options }, ...https },
  ];
  return [
    ...tls("plain", {}),
    ...tls("1.2", { maxVersion: "TLSv1.2" }),
    ...tls("1.1", { minVersion: "TLSv1", maxVersion: "TLSv1.1", ciphers: "DEFAULT@SECLEVEL=0" }),
    ...tls("1.3 alone", { minVersion: "TLSv1.3" }),
    ...tls("ALPN http/1.1", { ALPNProtocols: ["http/1.1"] }),
    ...tls("ALPN of another protocol", { ALPNProtocols: ["x"] }),
    ...tls("RSA key exchange alone", { maxVersion: "TLSv1.2", ciphers: "AES128-SHA" }),
    ...tls("CBC alone", { maxVersion: "TLSv1.2", ciphers: "ECDHE-ECDSA-AES128-SHA" }),
    ...tls("CBC with SHA-256 alone", { maxVersion: "TLSv1.2", ciphers: "ECDHE-ECDSA-AES128-SHA256" }),
    ...tls("ChaCha20 alone", { maxVersion: "TLSv1.2", ciphers: "ECDHE-ECDSA-CHACHA20-POLY1305" }),
    ...tls("a client certificate is asked for", { requestCert: true, rejectUnauthorized: false }),
    ...tls("a client certificate is required", { requestCert: true, rejectUnauthorized: true }),
    ...[
      "HTTP/1.1 400 Bad Request\r\n\r\nplain",
      "HTTP/1.1 200 OK\r\n\r\nok",
      "HTTP/",
      "HTT",
      "garbage that is longer",
      "\u0015\u0003\u0001\u0000\u0002\u0002\u0028",
      "\u0015\u0003\u0003\u0000\u0002\u0002\u0046",
      "\u0015\u0003\u0003\u0000\u0002\u0002\u0070",
      "\u0015\u0003\u0003\u0000\u0002\u0001\u0000",
      "\u0016\u0003\u0003\u0000\u0004abcd",
      "\u0080\u0003\u0003\u0000\u0004abcd",
      "\u0016\u0003\u0003\u00ff\u00ffab",
      "\u0017\u0003\u0003\u0000\u0004abcd",
      "",
      "SSH-2.0-x\r\n",
    ].flatMap((plain): HttpCase[] => [
      { name: `TLS to a plain server that says ${shown(plain)}`, server: { answer: plain, atOnce: true }, ...https },
      {
        name: `hook: TLS to a plain server that says ${shown(plain)}`,
        kind: "hook",
        server: { answer: (request: string) => (request.startsWith("GET") ? answer : plain), atOnce: true },
        ...https,
      },
    ]),
    { name: "TLS: silent", server: { answer: "", ending: "stays open" }, ...https, timeoutMs: 300 },
    { name: "TLS: bare LF", server: { answer: "HTTP/1.1 200 OK\n\nok", tls: {} }, ...https },
    { name: "TLS: short", server: { answer: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nok", tls: {} }, ...https },
    { name: "TLS: no answer", server: { answer: "", tls: {} }, ...https },
    { name: "TLS: no answer, 1.2", server: { answer: "", tls: { maxVersion: "TLSv1.2" } }, ...https },
    { name: "TLS: until closed", server: { answer: "HTTP/1.1 200 OK\r\n\r\nok", tls: {} }, ...https },
    { name: "plain to a TLS server", server: { answer, tls: {} }, action: {} },
    { name: "plain to an HTTP/2 server", server: { http2: (stream) => stream.end() }, action: {} },
    ...(["probe", "hook"] as const).flatMap((kind): HttpCase[] => [
      {
        name: `${kind}: HTTP/2`,
        kind,
        ...https,
        server: { http2: (stream) => void (stream.respond({ ":status": 200 }), stream.end("ok")) },
      },
      {
        name: `${kind}: HTTP/2 500`,
        kind,
        ...https,
        server: { http2: (stream) => void (stream.respond({ ":status": 500 }), stream.end("no")) },
      },
      {
        name: `${kind}: HTTP/2 or 1.1`,
        kind,
        ...https,
        server: {
          http2: (stream) => void (stream.respond({ ":status": 200 }), stream.end("ok")),
          tls: { ALPNProtocols: ["h2", "http/1.1"] },
        },
      },
    ]),
    {
      name: "HTTP/2: headers and Host",
      server: { http2: (stream) => void (stream.respond({ ":status": 200 }), stream.end("ok")) },
      action: {
        scheme: "HTTPS",
        path: "/p q?r=s",
        httpHeaders: headersOf([
          ["Host", "mine.example"],
          ["X-Two", "1"],
          ["x-two", "2"],
          ["User-Agent", ""],
          ["Connection", "close"],
          ["Cookie", "a=b; c=d"],
        ]),
      },
    },
    {
      name: "HTTP/2: redirect",
      server: {
        http2: (stream, path) => {
          stream.respond(path === "/to" ? { ":status": 200 } : { ":status": 302, location: "/to" });
          stream.end("x");
        },
      },
      ...https,
    },
    { name: "HTTP/2: reset", server: { http2: (stream) => stream.close(2) }, ...https },
    {
      name: "HTTP/2: reset in the body",
      server: {
        http2: (stream) => {
          stream.respond({ ":status": 200 });
          stream.write("part");
          setTimeout(() => stream.close(2), 50);
        },
      },
      ...https,
    },
    {
      name: "HTTP/2: large body",
      server: {
        http2: (stream) => {
          stream.respond({ ":status": 200 });
          stream.end("x".repeat(300_000));
        },
      },
      ...https,
    },
    { name: "HTTP/2: silent", server: { http2: () => {} }, ...https, timeoutMs: 300 },
    {
      name: "HTTP/2: an early hint",
      server: {
        http2: (stream) => {
          stream.additionalHeaders({ ":status": 103 });
          stream.respond({ ":status": 204 });
          stream.end();
        },
      },
      ...https,
    },
    { name: "HTTP/2: connection destroyed", server: { http2: (stream) => stream.session?.destroy() }, ...https },
  ];
}
