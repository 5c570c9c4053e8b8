import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { objectsIn, ofKind, templateArguments } from "../harness/chart.ts";
import { chart, findHelm } from "../harness/helm.ts";
import { must } from "../harness/processes.ts";

test("the cases for chart-testing render, and helm lint has nothing to say of them", async () => {
  const helm = await findHelm();
  const folder = join(chart, "ci");
  const cases = readdirSync(folder);
  assert.ok(cases.length > 3 && cases.every((file) => file.endsWith("-values.yaml")), cases.join());
  for (const file of cases) {
    const values = ["--values", join(folder, file)];
    assert.match(await must([helm, "lint", "--strict", chart, ...values]), /0 chart\(s\) failed/);
    const rendered = objectsIn(await must([helm, ...templateArguments(...values)]));
    assert.equal(ofKind(rendered, "Deployment").length, 1, file);
  }
});
