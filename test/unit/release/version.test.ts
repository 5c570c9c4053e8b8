import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { test } from "node:test";
import { agreedVersion, notesOf } from "../../../tools/release/version.ts";
import { readSource } from "../../../tools/release/source.ts";

const changelog = `# Changelog

## [Unreleased]

### Added

- To come.

## [0.2.0] - 2026-12-01

### Added

- New.

## [0.1.0] - 2026-11-01

- First.
`;

test("reports two places whose versions differ", () => {
  assert.equal(agreedVersion({ "package.json": "0.1.0", "Chart.yaml": "0.1.0" }), "0.1.0");
  assert.throws(() => agreedVersion({ "package.json": "0.2.0", "Chart.yaml": "0.1.0" }), {
    message: "package.json has version 0.2.0, and Chart.yaml has 0.1.0: write the same version into both",
  });
  assert.throws(() => agreedVersion({ "package.json": "0.2.0", "Chart.yaml": undefined }), /Chart\.yaml has none/);
  assert.throws(() => agreedVersion({ "package.json": undefined }), /package\.json has no version/);
});

test("takes the notes from the version's own section of the changelog", () => {
  assert.equal(notesOf(changelog, "0.2.0", false), "### Added\n\n- New.\n");
  assert.equal(notesOf(changelog, "0.1.0", false), "- First.\n");
});

test("rejects a release without a section; a dry run uses the unreleased one", () => {
  const refusal =
    /^Error: CHANGELOG\.md says nothing of version 0\.3\.0, which package\.json has: write its section, "## \[0\.3\.0\] - YYYY-MM-DD"$/;
  assert.throws(() => notesOf(changelog, "0.3.0", false), refusal);
  assert.equal(notesOf(changelog, "0.3.0", true), "### Added\n\n- To come.\n");
  assert.throws(() => notesOf("# Changelog\n\n## [Unreleased]\n", "0.3.0", true), refusal);
});

test("this checkout has one version, and a commit with a date", async () => {
  const { version, revision, date, notes } = await readSource({ draft: true });
  assert.match(version, /^\d+\.\d+\.\d+$/);
  assert.match(revision, /^[0-9a-f]{40}$/);
  assert.ok(date > 1_700_000_000);
  assert.match(notes, /^(### |- )/);
});

test("rejects an invalid release in one sentence, before building", () => {
  const main = join(import.meta.dirname, "..", "..", "..", "tools", "release", "main.ts");
  const refusal = (step: string) => {
    const env = { ...process.env, TAG: "v0.0.0" };
    const { status, stderr } = spawnSync(process.execPath, [main, step], { env, encoding: "utf8" });
    assert.equal(status, 1);
    return stderr;
  };
  // A tag of another version, unless this checkout has no notes or files that are not committed.
  assert.match(refusal("publish"), /^[^\n]+: (tag the commit|write its section|commit them)[^\n]+\n$/);
  assert.match(refusal("pblish"), /^write: node tools\/release\/main\.ts publish \| sign \| page\n$/);
});
