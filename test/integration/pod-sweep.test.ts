import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { describe, test } from "node:test";
import { messageOf } from "../../src/lib/errors.ts";
import type { Pod } from "../../src/objects.ts";
import { type Agent, startGraftlet, startKubelet } from "../harness/agent.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { type Pods, openPods, shell, statusOf } from "../harness/pods.ts";
import { waitFor } from "../harness/wait.ts";
import { linesOf, type SweepCase, show } from "./pod-sweep/case.ts";
import { sweep } from "./pod-sweep/cases.ts";
import { objects } from "./pod-sweep/environment.ts";

/** So many pods are under way side by side: most wait for the agent's next look, and some until they count as stuck. */
const atOnce = 16;

/** All pods ask for the image at once. */
const config = { registryPullQPS: 0 };

/** What became of a pod, without what differs from run to run. */
interface Outcome {
  /** Lines that its container printed (`linesOf`). */
  readonly shown?: readonly string[];
  /** How the container ended. */
  readonly ended?: string;
  /** Why its container waits. */
  readonly waits?: string;
  /** Warnings about it, each once. */
  readonly warnings: readonly string[];
}

describe("what a container sees of its pod's spec", () => {
  test("a container sees the effects of its pod's spec identically with graftlet and with the kubelet, on the same containerd", async () => {
    await using cluster = await startCluster({ name: "pod-sweep" });
    writeFileSync(
      cluster.layout.resolvConf,
      "nameserver 10.9.0.1\nsearch home.example other.example\noptions timeout:1 rotate\n",
    );
    await using pods = await openPods(cluster);
    for (const object of objects)
      await pods.api.create(`/api/v1/namespaces/default/${object.kind.toLowerCase()}s`, object);
    const expected = await outcomesBy(await startKubelet(cluster, { config }), cluster, pods);
    const actual = await outcomesBy(await startGraftlet(cluster, { config }), cluster, pods);
    const without = [...expected, ...actual].filter(([, { waits = "" }]) => /^(?:refused|failed): /.test(waits));
    assert.deepEqual(without, [], "each pod of the sweep is accepted and comes to an outcome");
    const differences: string[] = [];
    for (const { name, differs } of sweep) {
      const [theirs, ours] = [JSON.stringify(expected.get(name)), JSON.stringify(actual.get(name))];
      const asNamed = differs ? theirs !== ours && differs.test(ours) : theirs === ours;
      if (!asNamed) differences.push(`${name}\n  kubelet:  ${theirs}\n  graftlet: ${ours}`);
    }
    console.log(`${sweep.length} pods, ${differences.length} differ`);
    assert.deepEqual(differences, []);
  });
});

async function outcomesBy(agent: Agent, cluster: Cluster, pods: Pods): Promise<Map<string, Outcome>> {
  await using _ = agent;
  // The node may still be Ready by the one before.
  const health = `/api/v1/nodes/${agent.nodeName}/proxy/healthz`;
  await waitFor("the agent's kubelet API", () =>
    pods.api.text(health).then(
      () => true,
      () => undefined,
    ),
  );
  const outcomes = new Map<string, Outcome>();
  const queue = [...sweep];
  const worker = async () => {
    for (let next = queue.shift(); next; next = queue.shift()) {
      const { name } = next;
      // One that is stuck is a difference, and no reason to leave out the others.
      const failed = (error: unknown): Outcome => ({ waits: `failed: ${messageOf(error)}`, warnings: [] });
      outcomes.set(name, await outcomeOf(next, cluster, pods).catch(failed));
    }
  };
  await Promise.all(Array.from({ length: atOnce }, worker));
  await agent.stop();
  return outcomes;
}

async function outcomeOf({ name, spec, metadata, main }: SweepCase, cluster: Cluster, pods: Pods): Promise<Outcome> {
  const container = shell(show, main);
  const draft = { restartPolicy: "Never", automountServiceAccountToken: false, ...spec, containers: [container] };
  const created = await pods.create(name, draft, metadata).catch(messageOf);
  if (typeof created === "string") return { waits: `refused: ${created}`, warnings: [] };
  const pod = await waitFor(`an outcome of ${name}`, () => settled(pods, created), {
    timeoutMs: 90_000,
    everyMs: 500,
    explain: async () => JSON.stringify([pods.history(name).at(-1)?.status, await pods.events(name)]),
  });
  const comparable = (text: string) => withoutChance(text, pod, cluster);
  const hasEnded = ended(pod);
  const { reason: waits = "no container", message = "" } = statusOf(pod)?.state?.waiting ?? {};
  const warnings = (await pods.events(name))
    .filter(
      ({ type, reason }) =>
        type === "Warning" && ![...passing, ...(hasEnded ? stuckReasons : [])].includes(reason ?? ""),
    )
    .map(({ reason, message }) => comparable(`${reason}: ${message}`));
  const outcome = {
    ...(hasEnded
      ? { shown: linesOf(await outputOf(pod, pods)).map(comparable), ended: comparable(endOf(pod)) }
      : { waits: comparable(`${waits}: ${message}`) }),
    warnings: [...new Set(warnings)].toSorted(),
  };
  const gone = pods.gone(name);
  await pods.remove(name, 0);
  await gone;
  return outcome;
}

/** What the container printed: all of it where it ended well, and it may have printed nothing where it did not. */
async function outputOf({ metadata: { name }, status }: Pod, pods: Pods): Promise<string> {
  const log = () => pods.log(name).catch(messageOf);
  if (status?.phase !== "Succeeded") return log();
  const whole = (text: string) => text.includes("\nenviron ") && text.endsWith("\nshown\n") && text;
  return waitFor(`all that ${name} printed`, async () => whole(await log()), { timeoutMs: 10_000, explain: log });
}

/** Events that come and go, and one that says what the waiting container says, a moment later. */
const passing = ["BackOff", "FailedScheduling", "Failed"];

function endOf(pod: Pod): string {
  const { reason = "", exitCode, message = "" } = statusOf(pod)?.state?.terminated ?? {};
  return `${pod.status?.phase} ${reason} ${exitCode} ${message}`;
}

const ended = ({ status }: Pod): boolean => ["Succeeded", "Failed"].includes(status?.phase ?? "");

/** Reasons for which a container waits until all is well; that an image cannot be pulled yet is no matter of the pod's. */
const passingReasons = ["", "ContainerCreating", "PodInitializing", "ErrImagePull", "ImagePullBackOff"];

/** Events of a pod that gets no containers. On a busy machine each may come once. */
const stuckReasons = ["FailedCreatePodSandBox", "FailedMount"];

/** A pod that has ended, or that waits for a reason which does not go away by itself. */
async function settled(pods: Pods, { metadata: { name, uid } }: Pod): Promise<Pod | undefined> {
  const pod = pods.history(name).at(-1);
  // The pod of this name that the other agent ran is remembered until the watch tells of the new one.
  if (pod?.metadata.uid !== uid) return undefined;
  if (ended(pod)) return pod;
  const { reason = "" } = statusOf(pod)?.state?.waiting ?? {};
  if (!passingReasons.includes(reason)) return pod;
  const failures = (await pods.events(name)).filter(({ reason: of = "" }) => stuckReasons.includes(of));
  const isStuck = failures.reduce((sum, { count = 1 }) => sum + count, 0) > 1;
  return isStuck ? pod : undefined;
}

function withoutChance(text: string, { metadata }: Pod, { layout }: Cluster): string {
  return text
    .replaceAll(metadata.uid, "UID")
    .replaceAll(layout.dir, "DIR")
    .replaceAll(/10\.244\.\d+\.\d+/g, "POD_IP")
    .replaceAll(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, "TIME")
    .replaceAll(/[0-9a-f]{64}/g, "ID")
    .replaceAll(/\/\.\.\d{4}_\S+?\//g, "/..DATED/");
}
