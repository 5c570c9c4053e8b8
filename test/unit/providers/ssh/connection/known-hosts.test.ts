import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { test } from "node:test";
import { knownKeys } from "../../../../../providers/ssh/connection/host-key.ts";

const types = (file: string, host: string, port = 22) => knownKeys(file, host, port).map(({ key }) => key);

test("matches names, lists and ports, and skips comments and invalid lines", () => {
  const file = [
    "# a comment",
    "",
    "one,two ssh-ed25519 A a comment",
    "[one]:2222 ssh-ed25519 B",
    "ONE ssh-rsa C",
    "one",
    "one ssh-ed25519",
    "[fd00::1]:2222 ssh-ed25519 D",
  ].join("\n");
  assert.deepEqual(types(file, "one"), ["A", "C"]);
  assert.deepEqual(types(file, "Two"), ["A"]);
  assert.deepEqual(types(file, "one", 2222), ["B"]);
  assert.deepEqual(types(file, "fd00::1", 2222), ["D"]);
  assert.deepEqual(types(file, "three"), []);
});

test("matches patterns and their negations", () => {
  const file = "*.example,!bad.example,10.0.0.? ssh-ed25519 A";
  assert.deepEqual(types(file, "good.example"), ["A"]);
  assert.deepEqual(types(file, "bad.example"), []);
  assert.deepEqual(types(file, "10.0.0.7"), ["A"]);
  assert.deepEqual(types(file, "10.0.0.77"), []);
  assert.deepEqual(types("a.c ssh-ed25519 A", "abc"), []);
});

test("matches hashed names", () => {
  const salt = Buffer.from("0123456789abcdefghij");
  const hash = createHmac("sha1", salt).update("[one]:2222").digest("base64");
  const file = `|1|${salt.toString("base64")}|${hash} ssh-ed25519 A`;
  assert.deepEqual(types(file, "one", 2222), ["A"]);
  assert.deepEqual(types(file, "one"), []);
});

test("classifies keys by the line's marker, and skips lines with an unknown marker", () => {
  const file = "@revoked one ssh-ed25519 A\n@cert-authority one ssh-ed25519 B\n@other one ssh-ed25519 C";
  assert.deepEqual(knownKeys(file, "one", 22), [
    { type: "ssh-ed25519", key: "A", role: "revoked" },
    { type: "ssh-ed25519", key: "B", role: "authority" },
  ]);
});

test("matches lines with a marker with or without the port, and plain lines only with it", () => {
  const file = ["@cert-authority *.example ssh-ed25519 A", "@revoked [h.example]:2222 ssh-ed25519 B"];
  assert.deepEqual(types([...file, "h.example ssh-ed25519 C"].join("\n"), "H.example", 2222), ["A", "B"]);
  assert.deepEqual(types(file.join("\n"), "h.example", 23), ["A"]);
  assert.deepEqual(types("@cert-authority *.example,!h.example ssh-ed25519 A", "h.example"), []);
});
