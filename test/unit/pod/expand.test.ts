import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { expand } from "../../../src/pod/expand.ts";

const values: Readonly<Record<string, string>> = { A: "1", B: "two", EMPTY: "", DOLLAR: "$(A)", "$(A": "odd" };

describe("expansion of $(NAME)", () => {
  const cases: readonly (readonly [text: string, expanded: string])[] = [
    ["$(A)", "1"],
    ["x$(A)y$(B)z", "x1ytwoz"],
    ["$(EMPTY)", ""],
    ["$(MISSING)", "$(MISSING)"],
    ["$$(A)", "$(A)"],
    ["$$$(A)", "$1"],
    ["$$$$(A)", "$$(A)"],
    ["$A", "$A"],
    ["$", "$"],
    ["a$", "a$"],
    ["$(A", "$(A"],
    ["$(A $$ b", "$(A $ b"],
    ["$()", "$()"],
    ["$(DOLLAR)", "$(A)"],
    ["$($(A))", "odd)"],
    ["${A}", "${A}"],
    ["$a$(A)", "$a1"],
  ];
  for (const [text, expanded] of cases) {
    it(`${text} → ${expanded}`, () =>
      assert.equal(
        expand(text, (name) => values[name]),
        expanded,
      ));
  }
});
