import assert from "node:assert/strict";
import { Agent } from "node:https";
import { test } from "node:test";
import { ContainerState } from "../../../src/gen/cri.ts";
import { systemClock } from "../../../src/lib/clock.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { fakeHost } from "../../fakes/host.ts";
import { aContainer, aPod } from "../../fakes/pods.ts";
import { adminToken, ask, runtimeOf, start } from "./harness.ts";

const pod = aPod({ containers: [aContainer("c")] }, { name: "p", namespace: "ns" });

test("returns the summary as JSON, omits networks and disks only for the value true, and reports failures", async () => {
  const asked: boolean[] = [];
  const failures: Error[] = [];
  const stats = {
    async summary(only: boolean) {
      asked.push(only);
      for (const failure of failures) throw failure;
      return { node: {} };
    },
    resource: async () => "r 1\n",
    cadvisor: async () => "c 1\n",
  };
  await using server = await start({ deps: { stats } });
  for (const query of ["", "?only_cpu_and_memory=true", "?only_cpu_and_memory=1"])
    assert.deepEqual((await ask(server, `/stats/summary${query}`)).body, '{"node":{}}');
  assert.equal((await ask(server, "/stats/summary", { method: "POST" })).status, 200);
  assert.deepEqual(asked, [false, true, false, false]);
  assert.equal((await ask(server, "/metrics/resource")).body, "r 1\n");
  assert.equal((await ask(server, "/metrics/cadvisor")).body, "c 1\n");
  failures.push(new CodedError("unavailable", "the target is out of reach"));
  const { status, body } = await ask(server, "/stats/summary");
  assert.deepEqual([status, body], [500, "Internal Error: the target is out of reach"]);
});

test("statistics require permission for their own subresource; proxy is not sufficient", async () => {
  const wanted: string[] = [];
  const authorizer = {
    async allowed(_user: unknown, _verb: string, subresource: string) {
      wanted.push(subresource);
      return subresource === "proxy";
    },
  };
  await using server = await start({ deps: { authorizer } });
  for (const path of ["/stats/summary", "/metrics/resource", "/metrics/cadvisor", "/logs/", "/checkpoint/ns/p/c"])
    assert.equal((await ask(server, path)).status, 403, path);
  assert.deepEqual(wanted, ["stats", "metrics", "metrics", "log", "checkpoint"]);
});

async function logs() {
  const { files, fs } = fakeHost({ clock: systemClock() });
  for (const path of ["/var/log/apt", "/var/log/pods/p", "/etc", "/var/lib/docker"])
    await fs.apply([{ kind: "mkdir", path, parents: true }]);
  files.put("/var/log/syslog", { data: "hello\n" });
  files.put("/var/log/a<b?", { data: "" });
  files.put("/var/log/apt.log", { data: "" });
  files.put("/var/lib/docker/c.log", { data: "from docker\n" });
  files.put("/etc/shadow", { data: "secret" });
  await fs.apply([
    { kind: "symlink", path: "/var/log/container.log", target: "/var/lib/docker/c.log" },
    { kind: "symlink", path: "/var/log/way-out", target: "/etc/shadow" },
    { kind: "symlink", path: "/var/log/apt/up", target: "../.." },
  ]);
  return fs;
}

test("logs: serves files and directory listings of the target", async () => {
  const runtime = runtimeOf({ logRoots: async () => ["/var/lib/docker"] });
  await using server = await start({ deps: { files: await logs(), runtime } });
  const get = async (path: string) => {
    const { status, body } = await ask(server, path);
    return [status, body] as const;
  };
  assert.deepEqual(await get("/logs/syslog"), [200, "hello\n"]);
  assert.deepEqual(await get("/logs/container.log"), [200, "from docker\n"], "where the runtime keeps its logs");
  const [status, list] = await get("/logs/");
  assert.equal(status, 200);
  assert.match(list, /^<!doctype html>\n<meta name="viewport" content="width=device-width">\n<pre>\n/);
  assert.match(list, /<a href="a%3Cb%3F">a&lt;b\?<\/a>\n<a href="apt\/">apt\/<\/a>\n<a href="apt\.log">/);
  const moved = await ask(server, "/logs/apt");
  assert.deepEqual([moved.status, moved.headers.location], [301, "apt/"]);
  const file = await ask(server, "/logs/syslog/");
  assert.deepEqual([file.status, file.headers.location], [301, "../syslog"]);
  assert.equal((await get("/logs/none"))[0], 404);
  for (const path of ["way-out", "apt/up/lib", "apt/up/"]) assert.equal((await get(`/logs/${path}`))[0], 403, path);
  assert.equal((await get("/logs/../../etc/shadow"))[0], 404);
  assert.equal((await ask(server, "/logs/syslog", { method: "POST" })).status, 405);
});

test("logs: supports range and conditional requests", async () => {
  await using server = await start({ deps: { files: await logs() } });
  const get = async (headers: Readonly<Record<string, string>>, path = "/logs/syslog") => {
    const answer = await ask(server, path, { headers: { authorization: `Bearer ${adminToken}`, ...headers } });
    return [answer.status, answer.body, answer.headers["content-range"]] as const;
  };
  const { headers } = await ask(server, "/logs/syslog");
  const modified = String(headers["last-modified"]);
  assert.deepEqual([headers["accept-ranges"], Number.isNaN(Date.parse(modified))], ["bytes", false]);
  const cases: readonly (readonly [string, number, string, string?])[] = [
    ["bytes=1-3", 206, "ell", "bytes 1-3/6"],
    ["bytes=4-", 206, "o\n", "bytes 4-5/6"],
    ["bytes=-3", 206, "lo\n", "bytes 3-5/6"],
    ["bytes=-99", 206, "hello\n", "bytes 0-5/6"],
    ["bytes=2-99", 206, "llo\n", "bytes 2-5/6"],
    ["bytes=6-", 416, "invalid range: failed to overlap\n", "bytes */6"],
    ["bytes=3-1", 416, "invalid range\n"],
    ["lines=1-2", 416, "invalid range\n"],
    ["bytes=0-0,2-2", 200, "hello\n"],
  ];
  for (const [range, status, body, of] of cases) assert.deepEqual(await get({ range }), [status, body, of], range);
  assert.equal((await get({ range: "bytes=1-3", "if-range": modified }))[0], 206);
  assert.equal((await get({ range: "bytes=1-3", "if-range": "Thu, 01 Jan 1970 00:00:00 GMT" }))[0], 200);
  for (const path of ["/logs/syslog", "/logs/"]) {
    assert.deepEqual((await get({ "if-modified-since": modified }, path)).slice(0, 2), [304, ""], path);
    assert.equal((await get({ "if-modified-since": "Thu, 01 Jan 1970 00:00:00 GMT" }, path))[0], 200, path);
  }
});

test("logs: treats file names as data", async () => {
  const files = await logs();
  await files.apply([
    { kind: "write", path: "/var/log/javascript:alert(1)", data: "" },
    { kind: "write", path: `/var/log/"><script>'`, data: "" },
    { kind: "mkdir", path: "/var/log/https:elsewhere.example" },
  ]);
  await using server = await start({ deps: { files } });
  const { body, headers } = await ask(server, "/logs/");
  assert.match(body, /<a href="\.\/javascript:alert%281%29">javascript:alert\(1\)<\/a>\n/);
  assert.match(body, /<a href="%22%3E%3Cscript%3E%27">&#34;&gt;&lt;script&gt;'<\/a>\n/);
  const here = "https://node.example/logs/";
  const leads = [...body.matchAll(/href="([^"]*)"/g)].map(([, to = ""]) => new URL(to, here).href);
  assert.ok(leads.length > 2 && leads.every((to) => to.startsWith(here)));
  assert.match(String(headers["content-security-policy"]), /default-src 'none'/);
  assert.equal(headers["x-content-type-options"], "nosniff");
  const moved = await ask(server, "/logs/https:elsewhere.example");
  assert.deepEqual([moved.status, moved.headers.location], [301, "./https:elsewhere.example/"]);
});

test("logs: does not list a directory that was replaced by a link meanwhile", async () => {
  for (const [path, calls] of [
    ["/logs/apt/file", "open"],
    ["/logs/apt/", "list"],
  ] as const) {
    const files = await logs();
    await files.apply([{ kind: "write", path: "/var/log/apt/file", data: "ours" }]);
    await files.apply([
      { kind: "mkdir", path: "/elsewhere" },
      { kind: "write", path: "/elsewhere/file", data: "secret" },
    ]);
    const swap = () =>
      files.apply([
        { kind: "rename", from: "/var/log/apt", to: "/var/log/away" },
        { kind: "symlink", path: "/var/log/apt", target: "/elsewhere" },
      ]);
    const open: typeof files.open = async (...of) => (await swap(), files.open(...of));
    const list: typeof files.list = async (...of) => (await swap(), files.list(...of));
    await using server = await start({ deps: { files: { ...files, ...(calls === "open" ? { open } : { list }) } } });
    const { status, body } = await ask(server, path);
    assert.equal(status, 403, path);
    assert.doesNotMatch(body, /secret|href/);
  }
});

test("aborts the response if a log is truncated while it is read", async () => {
  const files = await logs();
  const open: typeof files.open = async (...of) => {
    const file = await files.open(...of);
    return { ...file, stat: async (signal) => ({ ...(await file.stat(signal)), size: 10 }) };
  };
  await using server = await start({ deps: { files: { ...files, open } } });
  const agent = new Agent({ keepAlive: true });
  // The server ends an idle connection itself, a moment later.
  const signal = AbortSignal.timeout(3_000);
  await assert.rejects(ask(server, "/logs/syslog", { agent, signal }), { code: "ECONNRESET" });
  agent.destroy();
});

test("logs: follows a /var/log that is a link", async () => {
  const { files, fs } = fakeHost({ clock: systemClock() });
  await fs.apply([
    { kind: "mkdir", path: "/data/log", parents: true },
    { kind: "mkdir", path: "/var", parents: true },
    { kind: "symlink", path: "/var/log", target: "/data/log" },
  ]);
  files.put("/data/log/syslog", { data: "hello\n" });
  await using server = await start({ deps: { files: fs } });
  const { status, body } = await ask(server, "/logs/syslog");
  assert.deepEqual([status, body], [200, "hello\n"]);
});

test("logs: are disabled by enableSystemLogHandler: false", async () => {
  await using server = await start({ config: { enableSystemLogHandler: false }, deps: { files: await logs() } });
  const { status, body } = await ask(server, "/logs/syslog");
  assert.deepEqual([status, body], [405, "logs endpoint is disabled.\n"]);
});

test("stores a checkpoint in the target's root directory, or reports that the runtime does not support it", async () => {
  const { fs } = fakeHost({ clock: systemClock() });
  await fs.apply([{ kind: "mkdir", path: "/var/lib/kubelet", parents: true }]);
  const taken: unknown[] = [];
  const listContainers = async () => [{ id: "c-1", createdAt: 1n, state: ContainerState.CONTAINER_RUNNING }] as never;
  const runtime = runtimeOf({ listContainers, checkpointContainer: async (request) => void taken.push(request) });
  await using server = await start({ pods: [pod], deps: { files: fs, runtime } });
  const post = async (path: string) => {
    const { status, body } = await ask(server, `/checkpoint/${path}`, { method: "POST" });
    return [status, body] as const;
  };
  const [status, body] = await post("ns/p/c?timeout=1&timeout=7");
  const { items } = JSON.parse(body) as { items: string[] };
  assert.equal(status, 200);
  assert.match(items[0] ?? "", /^\/var\/lib\/kubelet\/checkpoints\/checkpoint-p_ns-c-\d{4}-.*Z\.tar$/);
  assert.deepEqual(taken, [{ containerId: "c-1", location: items[0], timeout: 7n }]);
  assert.equal((await fs.stat("/var/lib/kubelet/checkpoints")).mode, 0o700);
  assert.deepEqual(await post("ns/q/c"), [404, "pod does not exist"]);
  assert.deepEqual(await post("ns/p/d"), [404, "container d does not exist"]);
  assert.deepEqual(await post("ns/p/c?timeout=soon"), [404, "cannot parse value of timeout parameter"]);
  const past = "checkpointing of ns/p/c failed (CheckpointContainer requires the timeout value to be > 0)";
  assert.deepEqual(await post("ns/p/c?timeout=-1"), [500, past]);
  assert.equal(taken.length, 1);

  await using without = await start({ pods: [pod], deps: { files: fs, runtime: runtimeOf({ listContainers }) } });
  const refused = await ask(without, "/checkpoint/ns/p/c", { method: "POST" });
  assert.deepEqual(
    [refused.status, refused.body],
    [
      500,
      "checkpointing of ns/p/c failed (rpc error: code = Unimplemented desc = the container runtime does not support checkpoints)",
    ],
  );
});
