import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import type { V1Deployment, V1Job, V1NetworkPolicy, V1Pod, V1Service } from "@kubernetes/client-node";
import { objectsIn, ofKind, podOf, type Rendered, templateArguments, valueFiles } from "../harness/chart.ts";
import { findHelm } from "../harness/helm.ts";
import { verdictsOn } from "../harness/kubeconform.ts";
import { must } from "../harness/processes.ts";

/** Labels by which the release's own objects find Pods, and one that is the user's. */
const labels = {
  "app.kubernetes.io/name": "mine",
  "app.kubernetes.io/instance": "mine",
  "app.kubernetes.io/component": "kubelet",
  "graftlet.dev/listener": "edge-graftlet",
  "sidecar.istio.io/inject": "false",
};
const annotations = { "linkerd.io/inject": "disabled", note: "$(NAME) costs $5", "helm.sh/hook": "post-install" };

describe("podLabels and podAnnotations of the chart", { timeout: 300_000 }, () => {
  let objects: readonly Rendered[];
  let text: string;
  const one = <T>(kind: string): T => {
    const [found] = ofKind<T>(objects, kind);
    assert.ok(found, `there is no ${kind}`);
    return found;
  };
  before(async () => {
    const values = valueFiles().find(({ name }) => name === "dials-in")?.path ?? "";
    const set = [`--set-json=podLabels=${JSON.stringify(labels)}`];
    set.push(`--set-json=podAnnotations=${JSON.stringify(annotations)}`);
    text = await must([await findHelm(), ...templateArguments("--values", values, ...set)]);
    objects = objectsIn(text);
  });

  test("podLabels and podAnnotations are set on the Deployment's Pod and each hook's Pod", async () => {
    const pods = objects.filter((object) => podOf(object));
    assert.deepEqual(pods.map(({ kind }) => kind).toSorted(), ["Deployment", "Job", "Pod"]);
    for (const object of pods) {
      const { metadata } = object.kind === "Pod" ? object : ((object as V1Job | V1Deployment).spec?.template ?? {});
      assert.equal(metadata?.labels?.["sidecar.istio.io/inject"], "false", object.kind);
      assert.equal(metadata?.annotations?.["linkerd.io/inject"], "disabled", object.kind);
      assert.equal(metadata?.annotations?.["note"], annotations.note, object.kind);
    }
    const bad = (await verdictsOn(text, console.error)).filter(({ status }) => status !== "statusValid");
    assert.deepEqual(bad, []);
  });

  test("podAnnotations do not replace the annotations that make a Pod a hook", () => {
    assert.equal(one<V1Pod>("Pod").metadata?.annotations?.["helm.sh/hook"], "test");
  });

  test("podLabels do not make a Service, the Deployment or the NetworkPolicy select another Pod", () => {
    const chosenBy = (selector: Readonly<Record<string, string>> = {}) =>
      objects
        .filter((object) => {
          const has = podOf(object)?.labels;
          return has && Object.entries(selector).every(([key, value]) => has[key] === value);
        })
        .map(({ kind }) => kind);
    const services = ofKind<V1Service>(objects, "Service");
    const isListener = ({ metadata }: V1Service) => metadata?.name === "edge-graftlet-listener";
    assert.equal(services.filter(isListener).length, 1);
    for (const service of services)
      assert.deepEqual(chosenBy(service.spec?.selector), ["Deployment", ...(isListener(service) ? ["Job"] : [])]);
    assert.deepEqual(chosenBy(one<V1Deployment>("Deployment").spec?.selector.matchLabels), ["Deployment"]);
    assert.deepEqual(chosenBy(one<V1NetworkPolicy>("NetworkPolicy").spec?.podSelector?.matchLabels), ["Deployment"]);
  });

  test("podLabels and podAnnotations are passed to the pods that helm test creates on the nodes", () => {
    const { env = [] } = one<V1Pod>("Pod").spec?.containers[0] ?? {};
    // As Kubernetes expands a value: $$ is $, and $( ) is a variable.
    const given = (name: string): unknown => {
      const { value = "" } = env.find((each) => each.name === name) ?? {};
      assert.doesNotMatch(value.replaceAll("$$", ""), /\$/);
      return JSON.parse(value.replaceAll("$$", "$"));
    };
    assert.deepEqual(given("LABELS"), { "sidecar.istio.io/inject": "false" });
    assert.deepEqual(given("ANNOTATIONS"), { "linkerd.io/inject": "disabled", note: annotations.note });
  });
});
