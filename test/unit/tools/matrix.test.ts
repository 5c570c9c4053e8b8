import assert from "node:assert/strict";
import { existsSync, globSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { test } from "node:test";
import { moved, ranBefore } from "../../ledger.ts";
import { integration, type Provider, providers, usual } from "../../matrix.ts";
import { slowContracts } from "../../slow-contracts.ts";
import { type Asked, contractJobs, integrationJobs, sharing } from "../../../tools/test-jobs.ts";

const root = join(import.meta.dirname, "../../..");
const named = (folder: string): string[] =>
  globSync(`test/${folder}/**/*.test.ts`, { cwd: root }).map((path) => basename(path, ".test.ts"));
const asked: Asked = { only: "", provider: "", part: "test" };
const further = integrationJobs({ ...asked, part: "more" });
const run = new Set([...contractJobs(), ...integrationJobs(asked), ...further].map(({ name }) => name));
const pairs = (lists: Readonly<Record<Provider, readonly string[]>>): string[] =>
  providers.flatMap((provider) => lists[provider].map((file) => `integration ${file} with ${provider}`));

test("the matrix has every integration file, and no other", () => {
  assert.deepEqual(Object.keys(integration).toSorted(), named("integration").toSorted());
  for (const name of Object.keys(slowContracts)) assert.ok(named("contract").includes(name), name);
});

test("a file is run with providers that it fits, and says why those", () => {
  for (const [name, { on, more = [], fits = usual, why }] of Object.entries(integration)) {
    const both = [...on, ...more];
    for (const provider of both) assert.ok(fits.includes(provider), `${name} with ${provider}`);
    assert.equal(new Set(both).size, both.length, name);
    assert.match(why, /\w+ \w+/, name);
  }
});

test("make test and make test-more have the matrix and all contracts; ONLY, PROVIDER and ALL ask for all that fits", () => {
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
    /it is one of cri, cri-2\.4, docker, ssh, ssh-docker, ssh-systemd, ssh-docker-systemd, ssh-guest, ssh-docker-guest/,
  );
  const [newer] = integrationJobs({ ...asked, only: "pods", provider: "cri-2.4" });
  assert.deepEqual(newer?.env, { GRAFTLET_TEST_PROVIDER: "cri", GRAFTLET_TEST_CONTAINERD: "2.4" });
});

test("files that share a lab are one job with each provider, and start it by its name", () => {
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

test("what continuous integration ran once it still runs, or the ledger says what proves it", () => {
  const gone = pairs(ranBefore).filter((pair) => !run.has(pair));
  const told = moved.flatMap(({ files, was }) => files.map((file) => `integration ${file} with ${was}`));
  assert.deepEqual(told.toSorted(), gone.toSorted());
});

test("what the ledger names exists and is run by continuous integration", () => {
  for (const { files, was, by, why } of moved) {
    assert.ok(by.length > 0 && /\w+ \w+/.test(why), files.join());
    for (const proof of by) {
      if (proof === "integration same") {
        for (const file of files) {
          const others = [...(integration[file]?.on ?? []), ...(integration[file]?.more ?? [])].filter(
            (each) => each !== was,
          );
          assert.ok(others.length > 0, `${file} is run with no provider but ${was}`);
        }
      } else if (proof.startsWith("unit ")) {
        assert.ok(existsSync(join(root, "test/unit", `${proof.slice("unit ".length)}.test.ts`)), proof);
      } else assert.ok(run.has(proof), proof);
    }
  }
});
