import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import { caseFiles, objectsIn, templateArguments, valueFiles } from "../harness/chart.ts";
import { chart, findHelm } from "../harness/helm.ts";
import { verdictsOn } from "../harness/kubeconform.ts";
import { must } from "../harness/processes.ts";

/** Helm's own namespace, which stands nowhere else in the chart, and the one that the values name. */
const [given, elsewhere] = ["given-to-helm", "elsewhere"];
/** So that all templates render something. */
const cluster = "--api-versions=admissionregistration.k8s.io/v1/MutatingAdmissionPolicy";

describe("namespaceOverride", { timeout: 300_000 }, () => {
  let helm: string;
  const rendered = async (path: string, namespace: string, ...more: readonly string[]) =>
    must([helm, ...templateArguments("--namespace", namespace, "--values", path, cluster, ...more)]);
  before(async () => {
    helm = await findHelm();
  });

  for (const { name, path } of [...caseFiles(), ...valueFiles()])
    test(`namespaceOverride puts all objects of ${name} into its namespace, and no object refers to another`, async () => {
      const text = await rendered(path, given, `--set=namespaceOverride=${elsewhere}`);
      assert.doesNotMatch(text, new RegExp(given));
      assert.ok(objectsIn(text).some(({ metadata }) => metadata.namespace === elsewhere));
      assert.equal(text, await rendered(path, elsewhere));
    });

  test("namespaceOverride renders valid objects", async () => {
    const path = valueFiles().find(({ name }) => name === "dials-in")?.path ?? "";
    const verdicts = await verdictsOn(
      await rendered(path, given, `--set=namespaceOverride=${elsewhere}`),
      console.error,
    );
    assert.deepEqual(
      verdicts.filter(({ status }) => status !== "statusValid"),
      [],
    );
  });

  test("namespaceOverride is used in the kubectl commands of the notes, but not in their helm commands", async () => {
    const path = caseFiles().find(({ name }) => name === "ci/ssh-values.yaml")?.path ?? "";
    const set = ["--set", `namespaceOverride=${elsewhere}`, "--values", path];
    const notes = await must([helm, "install", "edge", chart, "--namespace", given, "--dry-run=client", ...set]);
    const commands = notes.split("\n").filter((line) => line.includes("--namespace "));
    assert.ok(commands.length > 3);
    for (const command of commands)
      assert.ok(command.includes(`--namespace ${command.includes("kubectl") ? elsewhere : given}`), command);
  });
});
