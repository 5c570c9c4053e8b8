import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { type UnheardStream, unheardStreams } from "../../../tools/stream-rules.ts";

const noop = "() => undefined";

/** Sources, and the names that the rule finds in each. */
const cases: Readonly<Record<string, { readonly source: string; readonly finds: readonly string[] }>> = {
  "a parameter that is written to": {
    source: `import type { Writable } from "node:stream";
      export function f(out: Writable) { out.write("x"); }`,
    finds: ["out"],
  },
  "a parameter to which all callers add a listener": {
    source: `import { PassThrough, type Writable } from "node:stream";
      function f(out: Writable) { out.write("x"); }
      const stream = new PassThrough(); stream.on("error", ${noop}); f(stream);`,
    finds: [],
  },
  "a parameter to which one caller adds no listener": {
    source: `import { PassThrough, type Writable } from "node:stream";
      function f(out: Writable) { out.write("x"); }
      const heard = new PassThrough(); heard.on("error", ${noop}); f(heard);
      const unheard = new PassThrough(); f(unheard);`,
    finds: ["out", "unheard"],
  },
  "a new socket that is only read": {
    source: `import { connect } from "node:net";
      const socket = connect(1); socket.on("data", ${noop});`,
    finds: ["socket"],
  },
  "a chain of calls with a listener": {
    source: `import { connect } from "node:net";
      const socket = connect(1).setNoDelay(true).on("error", ${noop}); socket.write("x");`,
    finds: [],
  },
  "a stream that is passed to a function with a listener": {
    source: `import { connect, type Socket } from "node:net";
      function guard(socket: Socket) { socket.once("error", ${noop}); }
      const socket = connect(1); guard(socket); socket.end();`,
    finds: [],
  },
  "streams in a pipeline": {
    source: `import { PassThrough, finished, pipeline } from "node:stream";
      const [a, b] = [new PassThrough(), new PassThrough()];
      pipeline(a, b, ${noop}); b.write("x");
      const c = new PassThrough(); finished(c, ${noop}); c.write("x");`,
    finds: [],
  },
  "the destination of a pipe": {
    source: `import { PassThrough } from "node:stream";
      export function f(from: PassThrough, to: PassThrough) { from.on("error", ${noop}); from.pipe(to); }`,
    finds: ["to"],
  },
  "a child process's stdin": {
    source: `import { spawn } from "node:child_process";
      const child = spawn("x"); child.on("error", ${noop}); child.stdin.write("x");`,
    finds: ["child.stdin"],
  },
  "a child process that has no listener but whose stdin has one": {
    source: `import { spawn } from "node:child_process";
      const child = spawn("x"); child.stdin.on("error", ${noop}); child.stdin.write("x");`,
    finds: ["child"],
  },
  "a stream that a function returns with a listener": {
    source: `import { connect } from "node:net";
      function dial() { const socket = connect(1); socket.on("error", ${noop}); return socket; }
      const socket = dial(); socket.write("x");`,
    finds: [],
  },
  "a class that listens to itself": {
    source: `import { Duplex } from "node:stream";
      class Quiet extends Duplex { constructor() { super(); this.on("error", ${noop}); } }
      export function f(one: Quiet, other: Duplex) { one.write("x"); other.write("x"); }`,
    finds: ["other"],
  },
  "a private field": {
    source: `import type { Socket } from "node:net";
      export class A { readonly #socket: Socket; constructor(socket: Socket) { this.#socket = socket; socket.on("error", ${noop}); }
        send() { this.#socket.write("x"); } }
      export class B { readonly #socket: Socket; constructor(socket: Socket) { this.#socket = socket; }
        send() { this.#socket.write("x"); } }`,
    finds: ["this.#socket"],
  },
  "streams that get a listener in a loop": {
    source: `import type { Duplex } from "node:stream";
      export function f(from: Duplex, to: Duplex) { for (const half of new Set([from, to])) half.on("error", ${noop}); to.write("x"); }`,
    finds: [],
  },
  "a stream in a destructured object": {
    source: `import type { Duplex } from "node:stream";
      function f({ to }: { to: Duplex }) { to.write("x"); }
      export function g(stream: Duplex) { stream.on("error", ${noop}); f({ to: stream }); }`,
    finds: [],
  },
  "a server without a listener": {
    source: `import { createServer } from "node:net";
      const server = createServer(); server.listen(1);`,
    finds: ["server"],
  },
  "an HTTP server whose responses have no listener": {
    source: `import { createServer } from "node:http";
      const server = createServer(); server.on("error", ${noop});`,
    finds: ["createServer()"],
  },
  "an HTTP server whose responses have a listener": {
    source: `import { type Server, createServer } from "node:http";
      declare function guardResponses<T extends Server>(server: T): T;
      const server = guardResponses(createServer((_request, response) => response.end("x"))); server.on("error", ${noop});`,
    finds: [],
  },
  "event emitters and hashes, which are not streams": {
    source: `import { createHash } from "node:crypto"; import { EventEmitter } from "node:events";
      const news = new EventEmitter(); news.emit("news"); const hash = createHash("sha256"); hash.update("x");`,
    finds: [],
  },
  "objects whose methods have the same names as a stream's": {
    source: `export function f(file: { write(text: string): void }, deferred: { end(): void }) { file.write("x"); deferred.end(); }`,
    finds: [],
  },
};

const names = Object.keys(cases);
let folder: string;
let found: readonly UnheardStream[] = [];

before(() => {
  folder = mkdtempSync(join(tmpdir(), "stream-rules-"));
  const types = join(import.meta.dirname, "../../../node_modules/@types");
  const compilerOptions = {
    strict: true,
    module: "nodenext",
    target: "esnext",
    noEmit: true,
    types: ["node"],
    typeRoots: [types],
  };
  writeFileSync(join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions, include: ["*.ts"] }));
  names.forEach((name, index) =>
    writeFileSync(join(folder, `case-${index}.ts`), `${cases[name]?.source}\nexport {};\n`),
  );
  found = unheardStreams(join(folder, "tsconfig.json"), folder, (name) => name.startsWith("case-"));
});
after(() => rmSync(folder, { recursive: true, force: true }));

for (const [index, name] of names.entries())
  test(`the rule on streams without an error listener handles ${name}`, () => {
    const inFile = found.filter(({ file }) => file === `case-${index}.ts`);
    assert.deepEqual(
      [...new Set(inFile.map((one) => one.name))].toSorted(),
      [...(cases[name]?.finds ?? [])].toSorted(),
    );
  });
