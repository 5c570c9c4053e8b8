import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { objectsIn, ofKind, templateArguments } from "../harness/chart.ts";
import { chart, findHelm } from "../harness/helm.ts";
import { must } from "../harness/processes.ts";
import { isRunAsItStands } from "../unit/documents/marks.ts";
import { type Block, blocksOf, commandsIn, pages, root, yamlIsFor } from "../unit/documents/pages.ts";

const isValues = (block: Block) => block.language === "yaml" && yamlIsFor(block) === "values of the chart";

/** The chart's address in the documents; these tests use the chart of the checkout instead. */
const published = "oci://ghcr.io/graftlet/charts/graftlet";

/** The blocks of commands that this file runs, each with the values that stand before it on its page. */
const runHere = pages.flatMap((page) => {
  const blocks = blocksOf(page);
  return blocks.flatMap((block, at) =>
    isRunAsItStands(block.mark) ? [{ block, values: blocks.slice(0, at).findLast(isValues) }] : [],
  );
});

describe("the documents' examples that need no cluster", { timeout: 1_200_000 }, () => {
  const folder = mkdtempSync(join(tmpdir(), "graftlet-documents-"));
  const program = (name: string, line: string) =>
    writeFileSync(join(folder, name), `#!/bin/bash\nexec ${line} "$@"\n`, { mode: 0o755 });
  let helm: string;
  before(async () => {
    helm = await findHelm();
    program("helm", helm);
    program("graftlet", `${process.execPath} ${join(root, "src", "main.ts")}`);
  });
  after(() => rmSync(folder, { recursive: true, force: true }));

  test("examples contain commands of helm and of graftlet", () => {
    const programs = new Set(runHere.flatMap(({ block }) => commandsIn(block).map((command) => command.split(" ")[0])));
    assert.deepEqual(programs, new Set(["graftlet", "source", "helm"]));
  });

  for (const { block, values } of runHere)
    test(`examples run as written: ${block.place}`, async () => {
      if (values) writeFileSync(join(folder, "edge.yaml"), values.text);
      const env = { PATH: `${folder}:${process.env["PATH"] ?? ""}` };
      for (const command of commandsIn(block))
        await must(["bash", "-euc", command.replaceAll(published, chart)], { cwd: folder, env });
    });

  for (const { place, text } of pages.flatMap(blocksOf).filter(isValues))
    test(`the chart accepts the values in an example: ${place}`, async () => {
      const file = join(folder, "values.yaml");
      writeFileSync(file, text);
      const rendered = objectsIn(await must([helm, ...templateArguments("--values", file)]));
      assert.equal(ofKind(rendered, "Deployment").length, 1);
    });
});
