import { createChance } from "../../harness/chance.ts";
import { type HttpCase, chunked, shown } from "./case.ts";
import texts from "./texts.json" with { type: "json" };

/** The bytes after the status line, by what they are. */
const answersOf = (name: string, answers: readonly string[]): HttpCase[] =>
  answers.map((answer) => ({ name: `${name} ${shown(answer)}`, server: { answer } }));

const statusLines: readonly string[] = [
  ...texts.statusLines,
  `HTTP/1.1 200 ${"x".repeat(5000)}`,
  `HTTP/1.1 ${" ".repeat(5000)}200 OK`,
  "y".repeat(5000),
];

const chunkBodies: readonly string[] = [
  ...texts.chunkBodies,
  `2\r\nok\r\n0\r\nA: ${"b".repeat(5000)}\r\n\r\n`,
  `2\r\nok\r\n0\r\nA: ${"b".repeat(4000)}\r\n\r\n`,
  `2;${"x".repeat(4000)}\r\nok\r\n0\r\n\r\n`,
  `2;${"x".repeat(4090)}\r\nok\r\n0\r\n\r\n`,
  `2;${"x".repeat(4096)}\r\nok\r\n0\r\n\r\n`,
  `2;${"x".repeat(9000)}\r\nok\r\n0\r\n\r\n`,
  `${"1\r\nx\r\n".repeat(3000)}0\r\n\r\n`,
  `${`1;${"e".repeat(20)}\r\nx\r\n`.repeat(1500)}0\r\n\r\n`,
  `2800\r\n${"x".repeat(10240)}\r\n0\r\n\r\n`,
  `2801\r\n${"x".repeat(10241)}\r\n0\r\n\r\n`,
  `27ff\r\n${"x".repeat(10239)}\r\nzz`,
  `ffff\r\n${"x".repeat(65535)}\r\n0\r\n\r\n`,
];

const headerBlocks: readonly string[] = [
  ...texts.headerBlocks,
  `A: ${"b".repeat(5000)}`,
  `${"A".repeat(5000)}: b`,
  `A: b\r\n${" c\r\n".repeat(500)}B: c`,
  `${"A: b\r\n".repeat(2000)}B: c`,
  `  ${"A".repeat(200)}: b`,
];

const raw: readonly string[] = [
  ...texts.raw,
  `${"HTTP/1.1 102 Wait\r\n\r\n".repeat(20)}HTTP/1.1 200 OK\r\n\r\nok`,
  `HTTP/1.1 200 OK\r\n\r\n${"x".repeat(10239)}`,
  `HTTP/1.1 200 OK\r\n\r\n${"x".repeat(10240)}`,
  `HTTP/1.1 200 OK\r\n\r\n${"x".repeat(300_000)}`,
  `HTTP/1.1 200 OK\r\nContent-Length: 10240\r\n\r\n${"x".repeat(10239)}`,
  `HTTP/1.1 200 OK\r\nContent-Length: 20000\r\n\r\n${"x".repeat(10240)}`,
  `HTTP/1.1 200 OK\r\nContent-Length: 10240\r\n\r\n${"x".repeat(10240)}`,
  `HTTP/1.1 200 OK\r\nA: ${"b".repeat(60_000)}\r\n\r\nok`,
  `HTTP/1.1 200 OK\r\n${`A: ${"b".repeat(900)}\r\n`.repeat(1000)}\r\nok`,
];

/** Answers with one to three bytes changed, doubled or left out; the same in each run. */
function mutatedCases(count: number): HttpCase[] {
  const { between, pick } = createChance(38);
  const next = (below: number) => Math.floor(between(0, below));
  const originals = raw.filter((answer) => answer.length > 10 && answer.length < 300);
  const odd = [
    "\r",
    "\n",
    "\r\n",
    " ",
    "\t",
    ":",
    ";",
    ",",
    "\u0000",
    "\u007f",
    "\u0080",
    "\u00ff",
    "0",
    "2",
    "-",
    "+",
    '"',
    "HTTP/1.1 ",
    "chunked",
  ];
  return Array.from({ length: count }, () => {
    let answer = pick(originals);
    for (let changes = 1 + next(3); changes > 0; changes--) {
      const at = next(answer.length);
      const inserted = pick([pick(odd), answer.slice(at, at + 1 + next(6)), ""]);
      answer = answer.slice(0, at) + inserted + answer.slice(at + next(3));
    }
    return { name: `mutated ${shown(answer)}`, server: { answer } };
  });
}

/** When a server answers and how it ends. */
export function timingCases(): HttpCase[] {
  const half = [
    "",
    "HTTP/1.1 200 OK",
    "HTTP/1.1 200 OK\r\nA: b\r\n",
    "HTTP/1.1 200 OK\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nok",
    `${chunked}2\r\nok\r\n`,
    `${chunked}2\r\nok\r\n0\r\n`,
    `${chunked}2\r\nok\r\n0\r\n\r\n`,
    "HTTP/1.1 100 Continue\r\n\r\n",
    "HTTP/1.1 204 No\r\n\r\n",
    "HTTP/1.1 304 No\r\n\r\n",
    "HTTP/1.1 101 Switching\r\n\r\n",
    "HTTP/1.1 500 No\r\n\r\n",
    "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.0 200 OK\r\n\r\n",
  ];
  return [
    ...half.map(
      (answer): HttpCase => ({
        name: `left open after ${shown(answer)}`,
        server: { answer, ending: "stays open" },
        timeoutMs: 300,
      }),
    ),
    ...half.map((answer): HttpCase => ({ name: `reset after ${shown(answer)}`, server: { answer, ending: "resets" } })),
    ...half
      .filter((answer) => /\r\n\r\n/.test(answer))
      .map((answer): HttpCase => ({ name: `hook: closed after ${shown(answer)}`, kind: "hook", server: { answer } })),
    { name: "byte by byte", server: { answer: "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\nok".split("") } },
    { name: "split between CR and LF", server: { answer: ["HTTP/1.1 200 OK\r", "\nA: b\r", "\n\r", "\nok"] } },
    { name: "chunks byte by byte", server: { answer: [chunked, ..."2\r\nok\r\n0\r\n\r\n".split("")] } },
    {
      name: "an answer before the request",
      server: { answer: "HTTP/1.1 200 OK\r\n\r\nok", atOnce: true, ending: "stays open" },
      timeoutMs: 300,
    },
    { name: "silence before the request", server: { answer: "", atOnce: true, ending: "stays open" }, timeoutMs: 300 },
    { name: "closed before the request", server: { answer: "", atOnce: true } },
  ];
}

/** What servers answer, byte for byte. */
export function answerCases(): HttpCase[] {
  const bytes = Array.from({ length: 256 }, (_, code) => String.fromCharCode(code));
  return [
    ...answersOf(
      "status line",
      statusLines.map((line) => `${line}\r\nContent-Length: 2\r\n\r\nok`),
    ),
    ...answersOf(
      "status line without CR",
      statusLines.slice(0, 40).map((line) => `${line}\nContent-Length: 2\n\nok`),
    ),
    ...answersOf(
      "header",
      headerBlocks.map((block) => `HTTP/1.1 200 OK\r\n${block}\r\n\r\nok`),
    ),
    ...answersOf(
      "header, bare LF",
      headerBlocks.map((block) => `HTTP/1.1 200 OK\n${block.replaceAll("\r\n", "\n")}\n\nok`),
    ),
    ...answersOf(
      "byte in a header's name",
      bytes.map((byte) => `HTTP/1.1 200 OK\r\nA${byte}B: c\r\n\r\nok`),
    ),
    ...answersOf(
      "byte in a header's value",
      bytes.map((byte) => `HTTP/1.1 200 OK\r\nA: b${byte}c\r\n\r\nok`),
    ),
    ...answersOf(
      "byte in a status line",
      bytes.map((byte) => `HTTP/1.1 20${byte} O\r\n\r\nok`),
    ),
    ...answersOf(
      "length",
      texts.lengths.map((length) => `HTTP/1.1 200 OK\r\nContent-Length: ${length}\r\n\r\nok`),
    ),
    ...answersOf(
      "length of HTTP/1.0",
      texts.lengths.map((length) => `HTTP/1.0 200 OK\nContent-Length:${length}\n\nok`),
    ),
    ...answersOf(
      "lengths",
      texts.lengthPairs.map(([a, b]) => `HTTP/1.1 200 OK\r\nContent-Length: ${a}\r\nContent-Length: ${b}\r\n\r\nok`),
    ),
    ...answersOf(
      "encoding",
      texts.encodings.map((encoding) => `HTTP/1.1 200 OK\r\nTransfer-Encoding:${encoding}\r\n\r\n2\r\nok\r\n0\r\n\r\n`),
    ),
    ...answersOf(
      "encoding beside a length",
      texts.encodings.map(
        (encoding) =>
          `HTTP/1.1 200 OK\r\nContent-Length: 12\r\nTransfer-Encoding: ${encoding}\r\n\r\n2\r\nok\r\n0\r\n\r\n`,
      ),
    ),
    ...answersOf(
      "chunks",
      chunkBodies.map((body) => `${chunked}${body}`),
    ),
    ...answersOf("raw", raw),
    ...mutatedCases(800),
  ];
}
