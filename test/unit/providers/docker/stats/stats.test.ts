import assert from "node:assert/strict";
import { test } from "node:test";
import { dockerStats } from "../../../../../providers/docker/stats/stats.ts";
import { type EngineAnswer, type EngineCall, fakeEngine } from "../engine.ts";

const { signal } = new AbortController();
const sample = {
  read: "2026-01-01T12:00:00Z",
  cpu_stats: { cpu_usage: { total_usage: 70 } },
  memory_stats: { usage: 1000, limit: 8000, stats: { inactive_file: 300 } },
};
const entry = (Id: string, type: string, State: string) => ({
  Id,
  State,
  Names: [type === "container" ? `/k8s_${Id}_p_ns_u1_0` : "/k8s_POD_p_ns_u1_0"],
  Labels: { "io.kubernetes.docker.type": type, ...(type === "container" && { "io.kubernetes.sandbox.id": "s1" }) },
});
const all = [
  entry("c1", "container", "running"),
  entry("c2", "container", "exited"),
  entry("s1", "podsandbox", "running"),
];

/** Lists by type and ID like the daemon: an ID filter matches a prefix. */
function daemon({ path, query }: EngineCall): EngineAnswer {
  if (path === "/info") return { status: 200, body: { DockerRootDir: "/d", MemTotal: 8000 } };
  if (path === "/containers/c1/stats" || path === "/containers/s1/stats") return { status: 200, body: sample };
  if (path !== "/containers/json") return { status: 404, body: { message: "gone" } };
  if (query.has("size")) return { status: 200, body: [{ Id: "c1", SizeRw: 5 }, { Id: "c2" }] };
  const filters: { label: string[]; id?: string[] } = JSON.parse(query.get("filters") ?? "{}");
  assert.ok(filters.label.includes("graftlet.dev/node=n1"));
  const found = all.filter(
    ({ Id, Labels }) =>
      filters.label.includes(`io.kubernetes.docker.type=${Labels["io.kubernetes.docker.type"]}`) &&
      Id.startsWith(filters.id?.[0] ?? ""),
  );
  return { status: 200, body: found };
}

test("running containers have full usage, others only that of their writable layer", async () => {
  await using engine = await fakeEngine(daemon);
  const [running, ended, ...more] = await dockerStats(engine.parts).listContainerStats(undefined, signal);
  assert.equal(more.length, 0);
  assert.equal(running?.attributes?.metadata?.name, "c1");
  assert.equal(running?.memory?.workingSetBytes?.value, 700n);
  assert.equal(running?.writableLayer?.usedBytes?.value, 5n);
  assert.equal(ended?.cpu, undefined);
  assert.equal(ended?.writableLayer?.usedBytes?.value, 0n);
  const asked = engine.calls.filter(({ path }) => path.endsWith("/stats"));
  assert.deepEqual(
    asked.map(({ path, query }) => `${path}?${query.toString()}`),
    ["/containers/c1/stats?stream=false&one-shot=true"],
  );
});

test("finds a single container by its full ID only", async () => {
  await using engine = await fakeEngine(daemon);
  const stats = dockerStats(engine.parts);
  assert.equal((await stats.containerStats("c2", signal))?.attributes?.id, "c2");
  for (const id of ["c", "c3", ""]) await assert.rejects(stats.containerStats(id, signal), { code: "not_found" }, id);
  await assert.rejects(stats.podSandboxStats("c1", signal), { code: "not_found" });
});

test("a pod's stats include its containers' stats", async () => {
  await using engine = await fakeEngine(daemon);
  const pod = await dockerStats(engine.parts).podSandboxStats("s1", signal);
  assert.deepEqual(
    pod?.linux?.containers.map(({ attributes }) => attributes?.id),
    ["c1", "c2"],
  );
  assert.equal(pod?.linux?.cpu?.usageCoreNanoSeconds?.value, 140n);
});

test("treats a container that disappears during the measurement as not running", async () => {
  await using engine = await fakeEngine((call) =>
    call.path.endsWith("/stats") ? { status: 404, body: { message: "no such container" } } : daemon(call),
  );
  const stats = await dockerStats(engine.parts).listContainerStats(undefined, signal);
  assert.deepEqual(
    stats.map(({ cpu }) => cpu),
    [undefined, undefined],
  );
});
