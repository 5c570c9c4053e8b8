import assert from "node:assert/strict";
import { test } from "node:test";
import { parseCommandLine } from "../../../src/config/command-line.ts";
import { filesIo, sentenceOf } from "./files.ts";

const file = (fields: string) => ({
  "/n.yaml": `apiVersion: graftlet.dev/v1alpha1\nkind: GraftletConfiguration\n${fields}\nnodes: [{name: a}]\n`,
});
const read = (fields: string) => {
  const result = parseCommandLine(["--nodes=/n.yaml"], filesIo(file(fields), { KUBERNETES_SERVICE_HOST: "192.0.2.1" }));
  assert.ok(result.kind === "run");
  return result.metrics;
};
const shown = "nodeObjects: {release: edge}";

test("serves metrics of GraftedNodes at the given port, by default nowhere", () => {
  assert.equal(read(shown), undefined);
  assert.deepEqual(read(`${shown}\nmetricsPort: 10249`), { address: "0.0.0.0", port: 10249 });
});

test("refuses a port for metrics that is in use, and one without GraftedNodes", () => {
  const refused = (fields: string) => sentenceOf(() => read(fields));
  assert.match(refused("metricsPort: 10249"), /^\/n.yaml: metricsPort is 10249: needs fleet or nodeObjects/);
  assert.match(refused(`${shown}\nmetricsPort: 10250`), /^\/n.yaml: metricsPort is 10250: node a listens/);
  assert.match(refused(`${shown}\nmetricsPort: 10248`), /^\/n.yaml: metricsPort is 10248: healthzPort uses that/);
  assert.match(refused(`${shown}\npagePort: 99\nmetricsPort: 99`), /^\/n.yaml: metricsPort is 99: pagePort uses that/);
});
