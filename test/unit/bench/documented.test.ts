import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { documentedRatios, ratioKey } from "../../bench/documented.ts";

test("documented ratios are read by figure and by whom they are held against", () => {
  const page = `<!-- bench x -->

| figure        | kubelet   | graftlet | loop | came to             | to reach           | reached |
| ------------- | --------- | -------- | ---- | ------------------- | ------------------ | ------- |
| burst, 50, s  | 8.86      | 8.57     | 5.42 | 0.97 × (0.96, 0.97) | ≤ 0.80 × kubelet   | no      |
|               |           |          |      | 1.58 × (1.65, 1.52) | ≤ 1.30 × loop      | no      |
| alone, s      | 1.00      | 2.00     |      |                     |                    |         |
| silence, ms   |           | 2.00     |      | 2.00 ms             | ≤ 300 ms           | yes     |

<!-- end of bench x -->`;
  assert.deepEqual(
    [...documentedRatios(page, "bench x")],
    [
      [ratioKey("burst, 50", "kubelet"), 0.97],
      [ratioKey("burst, 50", "loop"), 1.58],
    ],
  );
});

test("the page of figures documents the ratios that its guard needs", () => {
  const page = readFileSync(join(import.meta.dirname, "../../../docs/performance.md"), "utf8");
  const ratios = documentedRatios(page, "bench cri");
  for (const title of ["create → Running, one by one", "burst of 50: last Running"])
    assert.ok((ratios.get(ratioKey(title, "kubelet")) ?? 0) > 0, title);
});
