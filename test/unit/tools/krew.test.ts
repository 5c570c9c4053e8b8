import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { parse } from "yaml";
import { krewManifest, ownPackage } from "../../../tools/krew/manifest.ts";

const root = join(import.meta.dirname, "..", "..", "..");
const { name, version, description, homepage, bin } = JSON.parse(
  readFileSync(join(root, "package.json"), "utf8"),
) as Record<string, string>;
const chart = parse(readFileSync(join(root, "charts", "graftlet", "Chart.yaml"), "utf8")) as Record<string, string>;
const tarball = (architecture: string) => `graftlet-${version}-linux-${architecture}`;
const sums = `${"a".repeat(64)}  ${tarball("amd64")}.tar.gz\n${"b".repeat(64)} *${tarball("arm64")}.tar.gz\n`;

test("krew's manifest matches package.json and the chart, for each architecture", () => {
  const folder = mkdtempSync(join(tmpdir(), "graftlet-krew-"));
  try {
    const file = join(folder, "SHA256SUMS");
    writeFileSync(file, sums);
    const program = join(root, "tools", "krew", "manifest.ts");
    const printed = parse(execFileSync(process.execPath, [program, file], { encoding: "utf8" })) as {
      metadata: object;
      spec: Record<string, unknown> & { platforms: Record<string, unknown>[] };
    };
    assert.deepEqual(printed.metadata, { name });
    const { platforms, ...spec } = printed.spec;
    assert.deepEqual(
      [spec["version"], spec["homepage"], spec["shortDescription"]],
      [`v${version}`, homepage, description],
    );
    assert.deepEqual([chart["version"], chart["home"]], [version, homepage]);
    assert.deepEqual(Object.keys(bin ?? {}), [name]);
    assert.deepEqual(
      platforms,
      ["amd64", "arm64"].map((arch, index) => ({
        selector: { matchLabels: { os: "linux", arch } },
        uri: `${homepage}/releases/download/v${version}/${tarball(arch)}.tar.gz`,
        sha256: (index === 0 ? "a" : "b").repeat(64),
        files: [{ from: `${tarball(arch)}/*`, to: "." }],
        bin: name,
      })),
    );
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("rejects a release without the checksum of a tarball", () => {
  const [first = ""] = sums.split("\n");
  assert.throws(() => krewManifest(ownPackage(), first), /there is no SHA-256 of .*-linux-arm64\.tar\.gz/);
});
