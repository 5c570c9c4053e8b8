import assert from "node:assert/strict";
import { test } from "node:test";
import { gunzipSync } from "node:zlib";
import { systemClock } from "../../../src/lib/clock.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { type FakeHost, fakeHost } from "../../fakes/host.ts";
import { type World, adminToken, ask, start } from "./harness.ts";

/** A machine whose journal knows these units, and prints its own arguments as its log. */
function machine(units: readonly string[] = ["kubelet", "ssh"]): FakeHost {
  const host = fakeHost({ clock: systemClock() });
  host.program("journalctl", (args, { stdout }) => {
    const isList = args[0] === "--field";
    stdout.write(isList ? units.map((unit) => `${unit}.service\n`).join("") : `${JSON.stringify(args)}\n`);
    return 0;
  });
  host.files.put("/var/log/app.log", { data: "from app.log\n" });
  host.files.put("/var/log/db/db.log", { data: "from db/db.log\n" });
  host.files.put("/var/log/plain", { data: "from plain\n" });
  host.files.put("/etc/shadow", { data: "secret" });
  return host;
}

function world(host: FakeHost, extra: World["deps"] = {}): World {
  return {
    config: { enableSystemLogQuery: true },
    deps: { files: host.fs, spawn: (argv, signal) => host.spawn(argv, signal), ...extra },
  };
}

async function answers(queries: readonly string[], host = machine()): Promise<(readonly [number, string])[]> {
  await using server = await start(world(host));
  const all = queries.map(async (query) => {
    const { status, body } = await ask(server, `/logs/?${query}`);
    return [status, body] as const;
  });
  return await Promise.all(all);
}

async function answer(query: string, host = machine()): Promise<readonly [number, string]> {
  const [only = [0, ""]] = await answers([query], host);
  return only;
}

test("log query: prints the journal of services, with each option attached to its value", async () => {
  const options = "sinceTime=2026-01-02T03:04:05%2B01:00&untilTime=2026-01-03T00:00:00.5Z&tailLines=3&boot=-1";
  const [status, body] = await answer(`query=kubelet&query=ssh&${options}&pattern=a%20b%7C--file=/etc/shadow`);
  assert.equal(status, 200);
  assert.deepEqual(JSON.parse(body), [
    "--utc",
    "--no-pager",
    "--output=short-precise",
    "--since=2026-01-02 02:04:05 UTC",
    "--until=2026-01-03 00:00:00 UTC",
    "--pager-end",
    "--lines=3",
    "--unit=kubelet",
    "--unit=ssh",
    "--grep=a b|--file=/etc/shadow",
    "--boot=-1",
  ]);
});

test("log query: no service, pattern or file becomes an option or leads out of /var/log", async () => {
  const host = machine(["--file=x"]);
  const refused = await answers(
    ["query=--file=/x", "query=--file%3Dx", "query=a%0Ab", "query=a;b", `query=${"a".repeat(257)}`],
    host,
  );
  for (const [status, body] of refused) {
    assert.equal(status, 406, body);
    assert.match(
      body,
      /^query: Invalid value: .*: (input contains unsupported characters|length must be less than 256|statat .*)\n$/,
    );
  }
  await answer("query=-x&pattern=--directory=/tmp", machine(["-x"])).then(([, body]) =>
    assert.deepEqual((JSON.parse(body) as string[]).slice(3), ["--unit=-x", "--grep=--directory=/tmp"]),
  );
  assert.deepEqual(await answer("query=kubelet&pattern=a%00b"), [
    406,
    'pattern: Invalid value: "a\\x00b": may not contain NUL\n',
  ]);
  await host.fs.apply([{ kind: "symlink", path: "/var/log/out.log", target: "/etc/shadow" }]);
  for (const path of ["../etc/shadow", "/../etc/shadow", "./../../etc/shadow", "a/../../etc/shadow", "/out.log"])
    assert.deepEqual(await answer(`query=${path}`, host), [
      406,
      `query: Invalid value: ["${path}"]: statat ${path}: path escapes from parent\n`,
    ]);
  for (const service of ["..", "out"])
    assert.match(
      (await answer(`query=${service}`, host))[1],
      /^\nerror getting log for .*: path escapes from parent\n$/,
    );
});

test("log query: rejects malformed options in the kubelet's words", async () => {
  const table: readonly (readonly [query: string, status: number, text: string])[] = [
    ["query=", 400, 'query: Invalid value: [""]: may not be empty'],
    ["query=%20&query=", 400, 'query: Invalid value: [" ",""]: may not be empty'],
    ["query=a&sinceTime=yesterday", 400, 'sinceTime: Invalid value: "yesterday": invalid time format'],
    [
      "query=a&untilTime=2026-13-01T00:00:00Z",
      400,
      'untilTime: Invalid value: "2026-13-01T00:00:00Z": invalid time format',
    ],
    [
      "query=a&boot=x&tailLines=1.5",
      400,
      '[boot: Invalid value: "x": strconv.Atoi: parsing "x": invalid syntax, tailLines: Invalid value: "1.5": strconv.Atoi: parsing "1.5": invalid syntax]',
    ],
    ["boot=0", 406, "query: Required value: cannot be empty with options"],
    ["query=a&boot=1", 406, "boot: Invalid value: 1: must be less than 1"],
    ["query=a&tailLines=100001", 406, "tailLines: Invalid value: 100001: must be between 0 and 100000, inclusive"],
    ["query=a&tailLines=-1", 406, "tailLines: Invalid value: -1: must be between 0 and 100000, inclusive"],
    [
      "query=a&sinceTime=2026-01-02T00:00:00Z&untilTime=2026-01-01T00:00:00Z",
      406,
      'untilTime: Invalid value: "2026-01-01T00:00:00Z": must be after `sinceTime`',
    ],
    ["query=a&query=b&query=c&query=d&query=e", 406, "query: Too many: 5: must have at most 4 items"],
    ["query=/a&query=b", 406, 'query: Invalid value: "[/a], [b]": cannot specify a file and service'],
    ["query=/a&query=/b", 406, 'query: Invalid value: ["/a","/b"]: cannot specify more than one file'],
    ["query=/a&boot=0", 406, 'query: Invalid value: ["/a"]: cannot specify file with options'],
    ["query=/none", 406, 'query: Invalid value: ["/none"]: statat /none: no such file or directory'],
  ];
  const given = await answers(table.map(([query]) => query));
  assert.deepEqual(
    given,
    table.map(([, status, text]) => [status, `${text}\n`]),
  );
  await using server = await start(world(machine()));
  const { status, body } = await ask(server, "/logs/app.log?query=kubelet");
  assert.deepEqual([status, body], [406, "path not allowed in query mode\n"]);
});

test("log query: reads files named after a service that has no journal", async () => {
  assert.deepEqual(await answer("query=app&query=db&query=plain&query=none"), [
    200,
    "from app.log\nfrom db/db.log\nfrom plain\n\nlog not found for none\n",
  ]);
  assert.deepEqual(await answer("query=db/db.log"), [200, "from db/db.log\n"]);
  assert.deepEqual(await answer("query=/app.log"), [200, "from app.log\n"]);
  const [status, body] = await answer("query=app&query=kubelet&query=db&tailLines=1");
  assert.equal(status, 200);
  assert.match(
    body,
    /"--unit=kubelet"\]\n\noptions present and query resolved to log files for \[app db\]\ntry without/,
  );
  const none = machine();
  none.program("journalctl", undefined);
  assert.deepEqual(await answer("query=app", none), [200, "from app.log\n"]);
});

test("log query: compresses only for clients that accept gzip", async () => {
  await using server = await start(world(machine()));
  const { headers, bytes } = await ask(server, "/logs/?query=app", {
    headers: { authorization: `Bearer ${adminToken}`, "accept-encoding": "gzip" },
  });
  assert.equal(headers["content-encoding"], "gzip");
  assert.equal(headers["content-type"], "text/plain;charset=UTF-8");
  assert.equal(gunzipSync(bytes).toString(), "from app.log\n");
});

test("log query: ends a journal that takes longer than 30 s, and returns what was printed", async () => {
  const clock = fakeClock();
  const host = machine();
  const killed = Promise.withResolvers<void>();
  const started = Promise.withResolvers<void>();
  host.program("journalctl", async (args, { stdout, killed: signal }) => {
    stdout.write(args[0] === "--field" ? "slow.service\n" : "so far\n");
    if (args[0] === "--field") return 0;
    signal.addEventListener("abort", () => killed.resolve());
    started.resolve();
    await killed.promise;
    return 143;
  });
  await using server = await start(world(host, { clock }));
  const asked = ask(server, "/logs/?query=slow");
  await started.promise;
  await clock.advance(30_000);
  const { status, body } = await asked;
  await killed.promise;
  assert.deepEqual([status, body], [200, "so far\n"]);
});

test("log query: is ignored without enableSystemLogQuery", async () => {
  await using server = await start({ ...world(machine()), config: { enableSystemLogQuery: false } });
  assert.match((await ask(server, "/logs/?query=kubelet")).body, /<a href="app\.log">/);
});
