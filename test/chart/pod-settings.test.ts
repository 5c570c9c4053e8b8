import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import type { V1Deployment, V1PodSpec } from "@kubernetes/client-node";
import { objectsIn, ofKind, podOf, templateArguments, valueFiles } from "../harness/chart.ts";
import { findHelm } from "../harness/helm.ts";
import { verdictsOn } from "../harness/kubeconform.ts";
import { must } from "../harness/processes.ts";

describe("values of the Deployment and its Pod", { timeout: 300_000 }, () => {
  let helm: string;
  /** The Deployment, and the specs of all Pods by the kind of their objects, with these values and those of a file. */
  const render = async (values: object, file = "dials-in") => {
    const path = valueFiles().find(({ name }) => name === file)?.path ?? "";
    const set = Object.entries(values).map(([name, value]) => `--set-json=${name}=${JSON.stringify(value)}`);
    const text = await must([helm, ...templateArguments("--values", path, ...set)]);
    const bad = (await verdictsOn(text, console.error)).filter(({ status }) => status !== "statusValid");
    assert.deepEqual(bad, []);
    const objects = objectsIn(text);
    const [deployment] = ofKind<V1Deployment>(objects, "Deployment");
    const pods = Object.fromEntries(
      objects.flatMap((object) => {
        const pod = podOf(object);
        return pod ? [[object.kind, pod.spec]] : [];
      }),
    ) as Readonly<Record<"Deployment" | "Job" | "Pod", V1PodSpec>>;
    return { deployment, pods };
  };
  before(async () => {
    helm = await findHelm();
  });

  test("containerSecurityContext is merged into the securityContext of the containers that run graftlet", async () => {
    const { pods } = await render({
      containerSecurityContext: { readOnlyRootFilesystem: false, seLinuxOptions: { level: "s0:c1" } },
    });
    for (const kind of ["Deployment", "Job"] as const)
      assert.deepEqual(pods[kind].containers[0]?.securityContext, {
        readOnlyRootFilesystem: false,
        allowPrivilegeEscalation: false,
        capabilities: { drop: ["ALL"] },
        seLinuxOptions: { level: "s0:c1" },
      });
  });

  test("revisionHistoryLimit is set on the Deployment, even if it is 0, and omitted by default", async () => {
    const limit = async (values: object) => (await render(values)).deployment?.spec?.revisionHistoryLimit;
    assert.deepEqual([await limit({}), await limit({ revisionHistoryLimit: 0 })], [undefined, 0]);
    assert.equal(await limit({ revisionHistoryLimit: 3 }), 3);
  });

  test("extraEnvFrom is set on the containers that run graftlet", async () => {
    const extraEnvFrom = [{ secretRef: { name: "proxy" } }, { prefix: "A_", configMapRef: { name: "more" } }];
    const { pods } = await render({ extraEnvFrom });
    for (const kind of ["Deployment", "Job"] as const)
      assert.deepEqual(pods[kind].containers[0]?.envFrom, extraEnvFrom);
  });

  test("enableServiceLinks is false for all Pods unless it is set", async () => {
    for (const enableServiceLinks of [false, true]) {
      const { pods } = await render(enableServiceLinks ? { enableServiceLinks } : {});
      const links = Object.entries(pods).map(([kind, spec]) => [kind, spec.enableServiceLinks]);
      assert.deepEqual(Object.fromEntries(links), {
        Deployment: enableServiceLinks,
        Job: enableServiceLinks,
        Pod: enableServiceLinks,
      });
    }
  });

  test("containerSecurityContext leaves a local node's container privileged", async () => {
    const values = { containerSecurityContext: { readOnlyRootFilesystem: false } };
    const { pods } = await render(values, "local-containerd");
    assert.deepEqual(pods.Deployment.containers[0]?.securityContext, {
      privileged: true,
      readOnlyRootFilesystem: false,
    });
  });
});
