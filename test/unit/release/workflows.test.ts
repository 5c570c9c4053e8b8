import assert from "node:assert/strict";
import { existsSync, globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { parse } from "yaml";
import { keylessCommands } from "../../../tools/release/keyless.ts";

const root = join(import.meta.dirname, "..", "..", "..");
const textOf = (file: string) => readFileSync(join(root, file), "utf8");

interface Step {
  readonly uses?: string;
  readonly run?: string;
  readonly with?: Readonly<Record<string, unknown>>;
}

interface Job {
  readonly permissions?: Readonly<Record<string, string>>;
  readonly needs?: string;
  readonly "timeout-minutes"?: number;
  readonly steps: readonly Step[];
}

interface Workflow {
  readonly on: Readonly<Record<string, unknown>>;
  readonly permissions?: Readonly<Record<string, string>>;
  readonly env?: Readonly<Record<string, string>>;
  readonly jobs: Readonly<Record<string, Job>>;
}

const workflowOf = (name: string) => parse(textOf(`.github/workflows/${name}`)) as Workflow;
const jobsOf = (name: string) => Object.values(workflowOf(name).jobs);
const commandsOf = (name: string) => jobsOf(name).flatMap(({ steps }) => steps.flatMap(({ run }) => run ?? []));

describe("the workflows of continuous integration and releases", () => {
  const names = globSync("*.yml", { cwd: join(root, ".github", "workflows") });

  test("pins each action to the same commit everywhere, with its release in a comment", () => {
    const commits = new Map<string, string>();
    for (const name of names)
      for (const [, used = ""] of textOf(`.github/workflows/${name}`).matchAll(/uses: (.*)$/gm)) {
        const [, action = "", commit = ""] = /^([\w-]+\/[\w-]+)@([0-9a-f]{40} # v\d+\.\d+\.\d+)$/.exec(used) ?? [];
        assert.ok(action, `${name}: ${used}`);
        assert.equal(commits.get(action) ?? commit, commit, `${name}: ${used}`);
        commits.set(action, commit);
      }
    assert.ok(commits.has("actions/checkout"));
  });

  test("each step runs an action, a make target or .ci/run, or installs Debian packages", () => {
    const targets = new Set(
      [...textOf("Makefile").matchAll(/^([a-z][a-z -]*):/gm)].flatMap(([, all = ""]) => all.split(" ")),
    );
    for (const name of names) {
      for (const command of commandsOf(name)) {
        const [program = "", ...words] = command.split(" ");
        if (command.startsWith("sudo apt-get ")) continue;
        if (program === "make") for (const target of words) assert.ok(targets.has(target), `${name}: make ${target}`);
        else
          assert.ok(
            program === ".ci/run" && words.length === 0 && existsSync(join(root, program)),
            `${name}: ${command}`,
          );
      }
    }
  });

  test("each job has a timeout and least permissions", () => {
    for (const name of names)
      for (const job of jobsOf(name)) {
        assert.ok((job["timeout-minutes"] ?? Infinity) <= 180, name);
        assert.ok(job.permissions ?? workflowOf(name).permissions, name);
      }
    assert.deepEqual(workflowOf("ci.yml").permissions, { contents: "read" });
    const { permissions, jobs } = workflowOf("release.yml");
    assert.deepEqual(permissions, {});
    assert.deepEqual(Object.fromEntries(Object.entries(jobs).map(([name, job]) => [name, job.permissions])), {
      check: { contents: "read" },
      publish: { contents: "read", packages: "write" },
      sign: { contents: "read", packages: "write", "id-token": "write" },
      page: { contents: "write" },
    });
  });

  test("a release runs its jobs in order, and no checkout leaves its token to the next step", () => {
    const jobs = Object.entries(workflowOf("release.yml").jobs);
    assert.deepEqual(
      jobs.map(([name, { needs }]) => `${name} after ${needs}`),
      ["check after undefined", "publish after check", "sign after publish", "page after sign"],
    );
    const checkouts = jobs.flatMap(([, { steps }]) =>
      steps.filter(({ uses }) => uses?.startsWith("actions/checkout@")),
    );
    assert.equal(checkouts.length, jobs.length);
    for (const step of checkouts) assert.equal(step.with?.["persist-credentials"], false);
  });

  test("continuous integration runs everything; a tag makes a release, tested first, and signed before publication", () => {
    assert.deepEqual(commandsOf("ci.yml"), [".ci/run"]);
    assert.deepEqual(workflowOf("release.yml").on, { push: { tags: ["v*"] } });
    assert.deepEqual(commandsOf("release.yml"), [
      "sudo apt-get update",
      "sudo apt-get install --yes --no-install-recommends prometheus",
      "make check unit",
      "make release",
      "make release-sign",
      "make release-page",
    ]);
    const settings = [...textOf("tools/release/main.ts").matchAll(/setting\("(\w+)"/g)].map(([, name]) => name);
    const { env } = workflowOf("release.yml");
    assert.deepEqual(
      settings.filter((name) => env?.[name ?? ""] === undefined),
      [],
    );
  });
});

test("cosign signs image and chart by digest, attests provenance and SBOMs, and signs the checksums", () => {
  const published = {
    version: "0.1.0",
    image: "ghcr.io/graftlet/graftlet",
    imageDigest: "sha256:aa",
    chart: "ghcr.io/graftlet/charts/graftlet",
    chartDigest: "sha256:bb",
    files: [],
  };
  const predicates = [
    { type: "slsaprovenance1", file: "/r/predicate.json" },
    { type: "spdxjson", file: "/r/amd64.spdx.json" },
  ] as const;
  assert.deepEqual(
    keylessCommands(published, predicates, "/r").map((command) => command.join(" ")),
    [
      "cosign sign --yes ghcr.io/graftlet/graftlet@sha256:aa",
      "cosign sign --yes ghcr.io/graftlet/charts/graftlet@sha256:bb",
      "cosign attest --yes --type=slsaprovenance1 --predicate=/r/predicate.json ghcr.io/graftlet/graftlet@sha256:aa",
      "cosign attest --yes --type=spdxjson --predicate=/r/amd64.spdx.json ghcr.io/graftlet/graftlet@sha256:aa",
      "cosign sign-blob --yes --bundle=/r/SHA256SUMS.sigstore.json /r/SHA256SUMS",
    ],
  );
});
