import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import type { Container } from "../../../src/objects.ts";
import { podOf, preparerIn } from "./preparer.ts";

let root = "";
before(async () => void (root = await mkdtemp(join(tmpdir(), "graftlet-bounds-"))));
after(() => rm(root, { recursive: true }));

describe("size limits of a container configuration", () => {
  const env = [{ name: "A", value: "x".repeat(100_000) }];
  const part = (subPathExpr: string) => ({ name: "data", mountPath: "/x", subPathExpr });
  const words = Array<string>(10).fill("$(A)");
  const refusals: readonly (readonly [name: string, container: Partial<Container>, message: string | RegExp])[] = [
    [
      "a word of the expanded command",
      { env, command: ["a", "$(A)$(A)"] },
      /^command\[1\] is longer than 131072 bytes: shorten it/,
    ],
    [
      "a word of the expanded args",
      { env, args: ["a", "$(A)$(A)"] },
      /^args\[1\] is longer than 131072 bytes: shorten it/,
    ],
    [
      "an environment, command and args",
      { env, command: words, args: words },
      /^environment, command and args of the container exceed 2097152 bytes in total: /,
    ],
    [
      "an expanded subPathExpr",
      { env, volumeMounts: [part("$(A)$(A)")] },
      /^subPathExpr of volumeMounts\[0\] is longer than 131072 bytes: shorten it/,
    ],
    [
      "the sum of all expanded subPathExprs",
      { env, volumeMounts: Array.from({ length: 30 }, () => part("$(A)")) },
      /^subPathExpr and subPath of the container's volumeMounts exceed 2097152 bytes in total: /,
    ],
  ];
  for (const [name, container, message] of refusals)
    it(`rejects ${name} over the size limit`, async () => {
      await assert.rejects(preparerIn(root).configure(...podOf(container)), { message });
    });

  it("reads each environment file once", async () => {
    const large = `${`#${"x".repeat(60_000)}\n`.repeat(10)}A='written'`;
    await Promise.all(["one", "two"].map((name) => writeFile(join(root, name), large)));
    const { configure } = preparerIn(root, {
      mounted: new Map([["work", { hostPath: root, readOnly: false }]]),
    });
    const from = (...paths: string[]) =>
      paths.map((path) => ({ name: path, valueFrom: { fileKeyRef: { key: "A", path, volumeName: "work" } } }));
    const { envs } = await configure(...podOf({ env: from("one", "one") }));
    assert.equal(envs.find(({ key }) => key === "one")?.value.toString(), "written");
    await assert.rejects(configure(...podOf({ env: from("one", "two") })), { message: "couldn't parse env file" });
  });
});
