import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { before, describe, test } from "node:test";
import { stringify } from "yaml";
import { caseFiles, objectsIn, type Rendered, templateArguments, valueFiles } from "../harness/chart.ts";
import { findHelm } from "../harness/helm.ts";
import { verdictsOn } from "../harness/kubeconform.ts";
import { must } from "../harness/processes.ts";

/** A path in an object of a kind to a field that there is not. */
const wrong: Readonly<Record<string, readonly (string | number)[]>> = {
  Deployment: ["spec", "template", "spec", "containers", 0, "imagePullPolice"],
  ConfigMap: ["dta"],
  Service: ["spec", "ports", 0, "targetPrt"],
  NetworkPolicy: ["spec", "ingress", 0, "form"],
  ClusterRole: ["rules", 0, "verb"],
  ValidatingAdmissionPolicy: ["spec", "matchConstraints", "resourceRules", 0, "apiGroup"],
  Job: ["spec", "template", "spec", "restart"],
  ServiceMonitor: ["spec", "endpoints", 0, "intervall"],
  PrometheusRule: ["spec", "groups", 0, "rules", 0, "alerts"],
};

describe("the chart's objects match the schemas of the API server and the Prometheus operator", {
  timeout: 600_000,
}, () => {
  const say = (line: string) => console.error(line);
  const texts = new Map<string, string>();
  const all = () => [...texts.values()].flatMap(objectsIn);

  before(async () => {
    const helm = await findHelm();
    for (const { name, path } of caseFiles())
      texts.set(name, await must([helm, ...templateArguments("--values", path)]));
    // These are what helm renders, as test/contract/chart-render.test.ts shows.
    for (const { name, golden } of valueFiles()) texts.set(name, readFileSync(golden, "utf8"));
  });

  for (const { name } of [...caseFiles(), ...valueFiles()])
    test(`${name}: all objects are valid`, async () => {
      const text = texts.get(name) ?? "";
      const verdicts = await verdictsOn(text, say);
      const bad = verdicts.filter(({ status }) => status !== "statusValid");
      assert.deepEqual(
        bad.map(({ kind, name: of, msg }) => `${kind} ${of}: ${msg}`),
        [],
      );
      assert.equal(verdicts.length, objectsIn(text).length);
    });

  test("detects an unknown field in each kind, in the object itself and in its metadata", async () => {
    const kinds = new Map(all().map((object) => [object.kind, object]));
    const spoilt = [...kinds].flatMap(([kind, object]) =>
      [["wrong"], ["metadata", "wrong"], ...(wrong[kind] ? [wrong[kind]] : [])].map((path) => withField(object, path)),
    );
    assert.deepEqual(
      Object.keys(wrong).filter((kind) => !kinds.has(kind)),
      [],
    );
    const verdicts = await verdictsOn(spoilt.map((object) => `---\n${stringify(object)}`).join(""), say);
    assert.equal(verdicts.length, spoilt.length);
    const passed = verdicts.filter(({ status }) => status !== "statusInvalid");
    assert.deepEqual(
      passed.map(({ kind, name, msg }) => `${kind} ${name} ${msg}`),
      [],
    );
  });

  test("detects a value of the wrong type, and an unknown kind", async () => {
    const [deployment] = all().filter(({ kind }) => kind === "Deployment");
    assert.ok(deployment);
    const typo = { ...deployment, kind: "Deploymnt" };
    const many = withField(deployment, ["spec", "replicas"], "many");
    const verdicts = await verdictsOn([typo, many].map((object) => `---\n${stringify(object)}`).join(""), say);
    assert.deepEqual(verdicts.map(({ status }) => status).toSorted(), ["statusError", "statusInvalid"]);
  });
});

/** A copy of an object with a field more, or with another value in it. */
function withField(object: Rendered, path: readonly (string | number)[], value = "x"): object {
  const copy = structuredClone(object);
  let at: unknown = copy;
  for (const key of path.slice(0, -1)) at = (at as Record<string | number, unknown>)[key];
  Object.assign(at as object, { [path.at(-1) ?? ""]: value });
  return copy;
}
