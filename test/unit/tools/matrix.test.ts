import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { test } from "node:test";
import { integration, usual } from "../../matrix.ts";
import { slowContracts } from "../../slow-contracts.ts";
import { waiting } from "../../waiting.ts";
import { type Asked, contractJobs, integrationJobs, sharing } from "../../../tools/test-jobs.ts";

const root = join(import.meta.dirname, "../../..");
const named = (folder: string): string[] =>
  globSync(`test/${folder}/**/*.test.ts`, { cwd: root }).map((path) => basename(path, ".test.ts"));
const asked: Asked = { only: "", provider: "", part: "test" };
const further = integrationJobs({ ...asked, part: "more" });
const run = new Set([...contractJobs(), ...integrationJobs(asked), ...further].map(({ name }) => name));

test("the matrix lists exactly the files of test/integration", () => {
  assert.deepEqual(Object.keys(integration).toSorted(), named("integration").toSorted());
  for (const name of [...Object.keys(slowContracts), ...waiting.contract])
    assert.ok(named("contract").includes(name), name);
  for (const name of waiting.integration) assert.ok(name in integration, name);
});

test("runs each file only with providers that it supports, and gives a reason", () => {
  for (const [name, { on, more = [], fits = usual, why }] of Object.entries(integration)) {
    const both = [...on, ...more];
    for (const provider of both) assert.ok(fits.includes(provider), `${name} with ${provider}`);
    assert.equal(new Set(both).size, both.length, name);
    assert.match(why, /\w+ \w+/, name);
  }
});

test("make test and make test-more run the matrix and all contracts; ONLY, PROVIDER and ALL select supported combinations", () => {
  const rows = Object.values(integration).reduce((sum, { on, more = [] }) => sum + on.length + more.length, 0);
  assert.equal(run.size, named("contract").length + rows);
  const [first] = further;
  assert.ok(first && !integrationJobs(asked).some(({ name }) => name === first.name));
  const names = (more: Partial<Asked>) => integrationJobs({ ...asked, ...more }).map(({ name }) => name);
  assert.deepEqual(names({ only: "docker-churn" }), ["integration docker-churn with docker"]);
  assert.deepEqual(names({ only: "probes", provider: "docker" }), ["integration probes with docker"]);
  assert.deepEqual(names({ only: "docker-churn", provider: "cri" }), []);
  assert.equal(names({ only: "probes" }).length, usual.length);
  assert.ok(names({ part: "all" }).includes("integration ssh-cut with ssh"));
  assert.throws(() => names({ only: "nothing" }), /no test\/integration\/nothing\*/);
  assert.throws(
    () => names({ provider: "podman" }),
    /it is one of cri, cri-2\.4, docker, docker-28, docker-29, ssh, ssh-docker, ssh-systemd, ssh-docker-systemd, ssh-guest, ssh-docker-guest/,
  );
  const [newer] = integrationJobs({ ...asked, only: "pods", provider: "cri-2.4" });
  assert.deepEqual(newer?.env, {
    GRAFTLET_TEST_PROVIDER: "cri",
    GRAFTLET_TEST_CONTAINERD: "2.4",
    GRAFTLET_TEST_DOCKER: "20.10",
  });
});

test("files that share a lab form one job per provider, and start the lab by its name", () => {
  const jobs = integrationJobs(asked);
  const shared = sharing(jobs);
  assert.deepEqual(shared.flatMap(({ files }) => files).toSorted(), jobs.flatMap(({ files }) => files).toSorted());
  const together = new Set(
    jobs.filter(({ lab }) => lab !== undefined).map(({ lab, env }) => JSON.stringify([lab, env])),
  );
  assert.equal(shared.length, jobs.filter(({ lab }) => lab === undefined).length + together.size);
  for (const { files } of shared) assert.equal(new Set(files).size, files.length);
  for (const [name, { lab }] of Object.entries(integration)) {
    const text = readFileSync(join(root, `test/integration/${name}.test.ts`), "utf8");
    if (lab !== undefined) assert.ok(text.includes(`startLab("${lab}"`), `${name} starts no lab called ${lab}`);
  }
});
