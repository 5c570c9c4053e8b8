import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { caseFiles, valueFiles } from "../harness/chart.ts";
import { chart, findHelm } from "../harness/helm.ts";
import { must } from "../harness/processes.ts";

describe("helm lint", { timeout: 300_000 }, () => {
  for (const { name, path } of [...caseFiles(), ...valueFiles()])
    test(`reports nothing for the chart with ${name}`, async () => {
      const lint = [await findHelm(), "lint", "--strict", chart, "--values", path];
      assert.match(await must(lint), /0 chart\(s\) failed/);
    });
});
