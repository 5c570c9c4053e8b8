import assert from "node:assert/strict";
import { join } from "node:path";
import { chart } from "../../harness/helm.ts";
import { type HelmLab, otherTag, release } from "../../harness/helm-lab.ts";
import { inNamespace } from "./release.ts";
import { type Replicas, watchReady } from "./replicas.ts";

/** Arguments with which Helm waits for what it has changed. */
export const waiting = ["--wait", "--timeout=180s"];

/** The chart to start with, and its settings: that of another checkout if one is given. */
export function versionToStart(other: string | undefined): readonly string[] {
  return other === undefined ? [chart] : [join(other, "charts", "graftlet"), `--set=image.tag=${otherTag}`];
}

interface RollOut {
  readonly machines: readonly string[];
  readonly values: readonly string[];
  readonly say: (line: string) => void;
}

/** Updates a release of another checkout to this one, rolls it back, and updates it again: containers run on, and each machine is served. Then
 *  starts a further replica of the other checkout, which stays. */
export async function rollOutAndBack(
  lab: HelmLab,
  shared: Replicas,
  { machines, values, say }: RollOut,
): Promise<void> {
  const running = await shared.containers();
  const upgrade = () => lab.mustHelm(["upgrade", release.name, chart, inNamespace, ...waiting, ...values]);
  const steps = {
    "rolled out from the other version": upgrade,
    "rolled back to the other version": () => lab.mustHelm(["rollback", release.name, inNamespace, ...waiting]),
    "rolled out again": upgrade,
    "further replica of the other version": () => startOtherReplica(lab),
  };
  for (const [name, step] of Object.entries(steps)) {
    using watch = watchReady(lab, machines);
    const began = performance.now();
    await step();
    await shared.untilShared(() => true, 120_000);
    for (const machine of machines) await shared.untilAnswers(machine);
    const unready = await watch.notReady();
    const took = ((performance.now() - began) / 1_000).toFixed(1);
    say(`${name}: all machines answered after ${took} s; Nodes not Ready meanwhile: ${unready.join(", ") || "none"}`);
    assert.deepEqual(await shared.containers(), running, name);
  }
}

interface Deployment {
  readonly metadata: { readonly labels: object };
  readonly spec: {
    readonly selector: { readonly matchLabels: object };
    readonly template: {
      readonly metadata: { readonly labels: object };
      readonly spec: { readonly containers: readonly { readonly image: string }[] };
    };
  };
}

const label = { "graftlet.test/version": otherTag };

/** Starts a further replica of the release, which runs the image of another checkout: a Deployment as the chart's, with another image. */
async function startOtherReplica({ cluster }: HelmLab): Promise<void> {
  const own = `${release.name}-graftlet`;
  const text = await cluster.mustKubectl(["get", "deployment", own, inNamespace, "--output=json"]);
  const { metadata, spec } = JSON.parse(text) as Deployment;
  const { template } = spec;
  const containers = template.spec.containers.map(({ image, ...rest }) => ({
    ...rest,
    image: image.replace(/:[^:/]*$/, `:${otherTag}`),
  }));
  assert.ok(containers.some(({ image }) => image.includes("graftlet/graftlet:")));
  const name = `${own}-${otherTag}`;
  await cluster.apply([
    {
      apiVersion: "apps/v1",
      kind: "Deployment",
      metadata: { name, namespace: release.namespace, labels: { ...metadata.labels, ...label } },
      spec: {
        ...spec,
        replicas: 1,
        selector: { matchLabels: { ...spec.selector.matchLabels, ...label } },
        template: {
          ...template,
          metadata: { ...template.metadata, labels: { ...template.metadata.labels, ...label } },
          spec: { ...template.spec, containers },
        },
      },
    },
  ]);
  const rollout = ["rollout", "status", `deployment/${name}`, inNamespace, "--timeout=120s"];
  await cluster.mustKubectl(rollout, { timeoutMs: 130_000 });
}
