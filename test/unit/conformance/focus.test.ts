import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { focusOn } from "../../conformance/focus.ts";
import { parseList } from "../../conformance/list.ts";

/** What ginkgo holds an expression against. The expressions use nothing in which Go's syntax differs from JavaScript's. */
const matched = (expressions: readonly string[], description: string, name: string): boolean =>
  expressions.some((each) => new RegExp(each).test(`${description} ${name}`));

test("a focus matches only the named tests, regardless of special characters in their names", () => {
  const names = ["[sig-a] x (y) a*b? {c} 1.5$ ^|\\", "[sig-a] x"];
  const focus = focusOn("Suite (1)", names);
  for (const name of names) assert.ok(matched(focus, "Suite (1)", name), name);
  for (const other of ["[sig-a] x y", "s [sig-a] x", "[sig-a] x (y) aab? {c} 1.5$ ^|\\", "a", "[sig-a]  x"])
    assert.ok(!matched(focus, "Suite (1)", other), other);
  assert.ok(!matched(focus, "A Suite (1)", "[sig-a] x"));
});

test("matches every test of the committed list, with arguments short enough for the kernel", () => {
  const list = parseList(readFileSync(join(import.meta.dirname, "../../conformance/tests.txt"), "utf8"), "tests.txt");
  const names = list.filter(({ suite }) => suite === "e2e").map(({ name }) => name);
  const focus = focusOn("Kubernetes e2e suite", names);
  for (const name of names) assert.ok(matched(focus, "Kubernetes e2e suite", name), name);
  for (const name of names) assert.ok(!matched(focus, "Kubernetes e2e suite", `${name} more`), name);
  assert.ok(focus.every((each) => Buffer.byteLength(`--focus=${each}`) < 128 * 1024));
});

test("splits a long list into several complete arguments", () => {
  const names = Array.from({ length: 2000 }, (_, index) => `[sig-node] a test with a name of its own, ${index}`);
  const focus = focusOn("Suite", names);
  assert.ok(focus.length > 1);
  assert.ok(focus.every((each) => Buffer.byteLength(each) < 64 * 1024));
  for (const name of [names[0], names[1999]]) assert.ok(matched(focus, "Suite", name ?? ""));
});
