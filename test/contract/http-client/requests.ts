import { type HttpCase, chunked, headersOf, shown } from "./case.ts";
import texts from "./texts.json" with { type: "json" };

const locations: readonly string[] = [...texts.locations, `/${"x".repeat(3000)}`];

const redirectCodes = [301, 302, 303, 307, 308, 300, 304, 305];

/** Where redirects lead. */
export function redirectCases(): HttpCase[] {
  const to =
    (location: string, code = 302) =>
    (request: string, port: number) =>
      / \/from/.test(request)
        ? `HTTP/1.1 ${code} Go\r\nLocation: ${location.replaceAll("PORT", String(port))}\r\nContent-Length: 4\r\n\r\ngone`
        : "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhere";
  const action = { path: "/from/a/b?old#frag" };
  const loop = (_: string, port: number) =>
    `HTTP/1.1 302 Go\r\nLocation: http://127.0.0.1:${port}/loop\r\nContent-Length: 0\r\n\r\n`;
  const endless = (request: string) =>
    / \/from/.test(request) ? "HTTP/1.1 302 Go\r\nLocation: /to\r\n\r\ngo" : "HTTP/1.1 200 OK\r\n\r\n";
  return [
    ...locations.map((location) => ({
      name: `redirect to ${shown(location)}`,
      server: { answer: to(location) },
      action,
    })),
    ...locations.slice(0, 20).map((location) => ({
      name: `redirect with a Host header to ${shown(location)}`,
      server: { answer: to(location) },
      action: {
        ...action,
        httpHeaders: [
          { name: "Host", value: "mine.example" },
          { name: "Authorization", value: "Bearer t" },
          { name: "Referer", value: "mine" },
        ],
      },
    })),
    ...redirectCodes.map((code) => ({ name: `redirect ${code}`, server: { answer: to("/to", code) }, action })),
    ...redirectCodes.map((code) => ({
      name: `hook: redirect ${code}`,
      kind: "hook" as const,
      server: { answer: to("/to", code) },
      action,
    })),
    { name: "redirect loop", server: { answer: loop } },
    {
      name: "redirect loop by a relative location",
      server: { answer: "HTTP/1.1 302 Go\r\nLocation: /loop\r\nContent-Length: 0\r\n\r\n" },
    },
    { name: "hook: redirect loop", kind: "hook", server: { answer: loop } },
    { name: "redirect without a length, closed", server: { answer: endless }, action },
    {
      name: "redirect without a length, left open",
      server: { answer: endless, ending: "stays open" },
      action,
      timeoutMs: 300,
    },
    {
      name: "two locations",
      server: {
        answer: (request) =>
          / \/from/.test(request)
            ? "HTTP/1.1 302 Go\r\nLocation: /a\r\nLocation: /b\r\n\r\n"
            : "HTTP/1.1 200 OK\r\n\r\n",
      },
      action,
    },
    { name: "an empty location", server: { answer: "HTTP/1.1 302 Go\r\nLocation: \r\n\r\nempty" }, action },
  ];
}

const oddTexts = [
  ...Array.from({ length: 128 }, (_, code) => `a${String.fromCharCode(code)}b`),
  "aéb",
  "a€b",
  "a😀b",
  "a\u0080b",
  "a\u00a0b",
  "a\ufeffb",
  "",
  " ",
  " a",
  "a ",
  "\ta\t",
  "a\r\nX: y",
  "a\nb",
];

const paths = [
  ...oddTexts.map((text) => `/${text}`),
  ...oddTexts.map((text) => `/p?${text}`),
  ...oddTexts.slice(-12),
  "p",
  "p/q",
  "/p%20q",
  "/p%2fq",
  "/p%2Fq",
  "/%",
  "/%4",
  "/%zz",
  "/%zz?q",
  "/p?%zz",
  "/p??",
  "/p?",
  "?",
  "?q",
  "/p#f",
  "#f",
  "/p?q#f",
  "/p#f?q",
  "/p#%zz",
  "//",
  "///p",
  "//h/p",
  "//u:p@h/p",
  "//u@h/p",
  "//h:99/p",
  "//h:x/p",
  "//[/p",
  "http://h/p",
  "ftp://h/p",
  "HTTP:p",
  "a:b",
  "1a:b",
  ":a",
  "*",
  "/*",
  "/../p",
  "/./p",
  "/p/..",
  "mailto:x",
  "http:",
  "http://",
  "/a:b",
  "a/b:c",
  "/~p",
  "/p;q=1",
  "/p+q",
  "/p@q",
  "/p,q",
  "/p'q",
  "/p(q)",
  "/p!q",
  "/p$q&r",
  "/%41%zz",
  "/%c3%a9",
  "/é%20",
  "/é%2f",
  `/${"x".repeat(20_000)}`,
];

const headerSettings = texts.headerSettings as [string, string][][];

/** What probes and hooks send. */
export function requestCases(): HttpCase[] {
  const server = { answer: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" };
  return [
    ...paths.map((path) => ({ name: `path ${shown(path)}`, server, action: { path } })),
    ...headerSettings.map((pairs) => ({
      name: `request headers ${shown(JSON.stringify(pairs))}`,
      server,
      action: { httpHeaders: headersOf(pairs) },
    })),
    ...headerSettings.map((pairs) => ({
      name: `hook: request headers ${shown(JSON.stringify(pairs))}`,
      kind: "hook" as const,
      server,
      action: { httpHeaders: headersOf(pairs) },
    })),
    ...oddTexts.map((text) => ({
      name: `header name ${shown(text)}`,
      server,
      action: { httpHeaders: [{ name: text, value: "v" }] },
    })),
    ...oddTexts.map((text) => ({
      name: `header value ${shown(text)}`,
      server,
      action: { httpHeaders: [{ name: "X-V", value: text }] },
    })),
    ...oddTexts
      .filter((text) => !/[\u0080\u00a0\ufeff]/.test(text))
      .map((text) => ({
        name: `Host header ${shown(text)}`,
        server,
        action: { httpHeaders: [{ name: "Host", value: text }] },
      })),
    ...[
      "127.0.0.1",
      "localhost",
      "LOCALHOST",
      "::1",
      "[::1]",
      "::1%lo",
      "::ffff:127.0.0.1",
      "a b",
      "a/b",
      "a%b",
      "a@b",
      "u@127.0.0.1",
      "a?b",
      "a#b",
      "é",
      "127.0.0.1\n",
      "\u0000",
      "[",
      "a[b",
      "<>",
      '"',
      "no-such-host.invalid",
      "0.0.0.0",
    ].map((host) => ({ name: `host ${shown(host)}`, server, action: { host } })),
    ...["http", "HTTP", "Http", "https", "ftp", ""].map((scheme) => ({
      name: `scheme ${shown(scheme)}`,
      server,
      action: { scheme },
    })),
    { name: "IPv6", server: { ...server, address: "::1" }, podIP: "::1" },
    { name: "IPv6 with a zone", server: { ...server, address: "::1" }, podIP: "::1%lo" },
    { name: "hook: IPv6", kind: "hook", server: { ...server, address: "::1" }, podIP: "::1" },
  ];
}

/** What docs/deviations.md names: these have to differ. */
export function namedDifferences(): HttpCase[] {
  const server = { answer: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" };
  const hostHeader = (value: string) => ({ httpHeaders: headersOf([["Host", value]]) });
  return [
    {
      name: "an error right behind the part of a body that is read",
      server: { answer: `${chunked}2800\r\n${"x".repeat(10240)}zz` },
    },
    {
      name: "headers of 2 MiB",
      server: { answer: `HTTP/1.1 200 OK\r\n${`A: ${"b".repeat(900)}\r\n`.repeat(2300)}\r\nok` },
    },
    {
      name: "another protocol",
      server: { answer: "HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nbytes", ending: "resets" },
    },
    { name: "a Host header with a character that host names never have", server, action: hostHeader("a\u00a0b") },
    { name: "the short form of an address", server, action: { host: "127.1" } },
    { name: "a host that is no IPv6 address", server, action: { host: "a:b" } },
    { name: "an odd zone of an IPv6 address", server: { ...server, address: "::1" }, podIP: "::1%a b" },
  ];
}
