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
    it(`expands ${text} to ${expanded}`, () =>
      assert.equal(
        expand(text, (name) => values[name], "a value"),
        expanded,
      ));
  }

  it("rejects a result that exceeds the argument limit before building it", () => {
    const half = "x".repeat(64 * 1024);
    assert.equal(expand("$(V)$(V)", () => half, "a value").length, 128 * 1024);
    for (const [text, value] of [
      ["$(V)$(V)x", half],
      ["$(V)".repeat(100_000), half],
      ["$(V)", "é".repeat(64 * 1024 + 1)],
      ["x".repeat(128 * 1024 + 1), ""],
    ] as const)
      assert.throws(() => expand(text, () => value, "a value"), {
        message: "a value is longer than 131072 bytes: shorten it, or move the large value to a file",
      });
  });

  it("takes linear time with many unterminated references", () => {
    const began = performance.now();
    assert.equal(
      expand("$(".repeat(60_000), () => "x", "a value"),
      "$(".repeat(60_000),
    );
    assert.equal(
      expand(`${"$(".repeat(60_000)})$$`, () => "x", "a value"),
      "x$",
    );
    assert.throws(() => expand("$(".repeat(700_000), () => "x", "a value"), /longer than/);
    assert.ok(performance.now() - began < 5_000, "a moment, not minutes");
  });
});
