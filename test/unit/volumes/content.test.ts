import assert from "node:assert/strict";
import { test } from "node:test";
import type { ConfigMap, Secret } from "../../../src/objects.ts";
import { cleanPath, configMapContent, contentDigest, secretContent } from "../../../src/volumes/content.ts";

const metadata = { name: "x", namespace: "default", uid: "x" };
const map: ConfigMap = { metadata, data: { a: "text" }, binaryData: { b: Buffer.from([0, 255]).toString("base64") } };
const secret: Secret = { metadata, data: { password: Buffer.from("hidden").toString("base64") } };
const all = { items: undefined, defaultMode: 0o644, optional: false };

test("without items, or with an empty list, every key becomes a file", () => {
  for (const items of [undefined, []]) {
    const content = configMapContent(map, { ...all, items });
    assert.deepEqual(
      [...content].map(([path, { data, mode }]) => [path, Buffer.from(data).toString("hex"), mode]),
      [
        ["a", Buffer.from("text").toString("hex"), 0o644],
        ["b", "00ff", 0o644],
      ],
    );
  }
});

test("items select keys, paths and modes", () => {
  const content = secretContent(secret, { ...all, items: [{ key: "password", path: "deep/./er//pw", mode: 0o400 }] });
  assert.deepEqual([...content.keys()], ["deep/er/pw"]);
  assert.equal(content.get("deep/er/pw")?.mode, 0o400);
  assert.equal(Buffer.from(content.get("deep/er/pw")?.data ?? []).toString(), "hidden");
});

test("reports a missing key in the kubelet's words, unless the source is optional", () => {
  const items = [{ key: "nope", path: "p" }];
  assert.throws(() => configMapContent(map, { ...all, items }), {
    code: "not_found",
    message: "configmap references non-existent config key: nope",
  });
  assert.throws(() => secretContent(secret, { ...all, items }), {
    code: "not_found",
    message: "references non-existent secret key: nope",
  });
  assert.equal(configMapContent(map, { ...all, items, optional: true }).size, 0);
  assert.equal(secretContent(undefined, { ...all, items, optional: true }).size, 0);
});

test("rejects paths outside the volume or with names of the atomic writer", () => {
  const cases: readonly (readonly [path: string, why: RegExp])[] = [
    ["", /must not be empty/],
    ["/etc/passwd", /must be relative path: \/etc\/passwd/],
    ["a/../../b", /must not contain '\.\.'/],
    ["..", /must not contain '\.\.'/],
    ["..data", /must not start with '\.\.'/],
    ["./..data", /must not start with '\.\.'/],
    [".", /must name a file/],
    ["x".repeat(256), /filenames must be less than or equal to 255/],
    ["x/".repeat(2049), /must be less than or equal to 4096/],
  ];
  for (const [path, why] of cases)
    assert.throws(() => cleanPath(path), { code: "invalid_argument", message: why }, path);
  assert.equal(cleanPath("a/..b"), "a/..b");
});

test("the digest depends on content, names, modes and owners, but not on order", () => {
  const file = (text: string, mode = 0o644, uid?: number) => ({
    data: Buffer.from(text),
    mode,
    ...(uid !== undefined && { uid }),
  });
  const same = contentDigest(
    new Map([
      ["a", file("1")],
      ["b", file("2")],
    ]),
  );
  assert.equal(
    contentDigest(
      new Map([
        ["b", file("2")],
        ["a", file("1")],
      ]),
    ),
    same,
  );
  const others = [
    new Map([
      ["a", file("12")],
      ["b", file("")],
    ]),
    new Map([["a", file("1")]]),
    new Map([
      ["a", file("1", 0o600)],
      ["b", file("2")],
    ]),
    new Map([
      ["a", file("1", 0o644, 5)],
      ["b", file("2")],
    ]),
  ];
  assert.equal(new Set([same, ...others.map((content) => contentDigest(content))]).size, 5);
});
