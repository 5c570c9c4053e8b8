import assert from "node:assert/strict";
import { test } from "node:test";
import { Container, ContainerState, PodSandbox } from "../../../src/gen/cri.ts";
import { type OwnershipInput, ownedPods } from "../../../src/remove/owned.ts";

const uid = (digit: number) => `${String(digit).repeat(8)}-0000-4000-8000-000000000000`;

function labelsOf(name: string, podUid: string, node?: string): Record<string, string> {
  return {
    "io.kubernetes.pod.name": name,
    "io.kubernetes.pod.namespace": "default",
    "io.kubernetes.pod.uid": podUid,
    ...(node !== undefined && { "graftlet.dev/node": node }),
  };
}

/** Sandboxes named after their pods, with one container each. */
function runtimeWith(...pods: readonly { name: string; uid: string; node?: string; source?: string }[]) {
  return {
    sandboxes: pods.map(({ name, uid, node, source }) =>
      PodSandbox.fromPartial({
        id: name,
        labels: labelsOf(name, uid, node),
        annotations: source === undefined ? {} : { "kubernetes.io/config.source": source },
      }),
    ),
    containers: pods.map(({ name, uid, node }) =>
      Container.fromPartial({
        id: `${name}-c`,
        podSandboxId: name,
        state: ContainerState.CONTAINER_RUNNING,
        labels: { ...labelsOf(name, uid, node), "io.kubernetes.container.name": "main" },
        annotations: { "io.kubernetes.pod.terminationGracePeriod": "30" },
      }),
    ),
  };
}

function owned(input: Partial<OwnershipInput>) {
  const { pods, strangers } = ownedPods({
    sandboxes: [],
    containers: [],
    directories: [],
    sharing: "exclusive",
    nodeName: "n1",
    staticPods: false,
    ...input,
  });
  const shown = pods.map(({ uid, sandboxIds, containers, hasDirectory }) => [
    uid,
    [...sandboxIds, ...containers.map(({ id }) => id)].join(),
    hasDirectory,
  ]);
  return { shown, strangers, pods };
}

test("in a shared runtime, only the node label decides", () => {
  const seen = runtimeWith({ name: "mine", uid: uid(1), node: "n1" }, { name: "yours", uid: uid(2), node: "n2" });
  const plain = runtimeWith({ name: "plain", uid: uid(3) });
  const { shown, strangers } = owned({
    sandboxes: [...seen.sandboxes, ...plain.sandboxes],
    containers: [...seen.containers, ...plain.containers],
    directories: [uid(1), uid(2), uid(3), uid(4)],
    sharing: "shared",
  });
  assert.deepEqual(shown, [
    [uid(4), "", true],
    [uid(1), "mine,mine-c", true],
  ]);
  assert.deepEqual(strangers, []);
});

test("in an exclusive runtime, a pod's directory also proves ownership, unless the pod has another node's label or is static", () => {
  const { shown, strangers } = owned({
    ...runtimeWith(
      { name: "mine", uid: uid(1), source: "api" },
      { name: "unknown", uid: uid(2) },
      { name: "yours", uid: uid(3), node: "n2" },
      { name: "static", uid: uid(4), source: "file" },
      { name: "labelled", uid: uid(5), node: "n1" },
    ),
    directories: [uid(1), uid(3), uid(4)],
  });
  assert.deepEqual(shown, [
    [uid(5), "labelled,labelled-c", false],
    [uid(1), "mine,mine-c", true],
  ]);
  assert.deepEqual(
    strangers,
    ["static", "unknown", "yours"].map((name) => `pod default/${name} in the runtime may not belong to this node`),
  );
});

test("static pods belong to the node if it has manifests", () => {
  const seen = runtimeWith({ name: "static", uid: uid(4), source: "file" });
  const { shown, strangers } = owned({ ...seen, directories: [uid(4)], staticPods: true });
  assert.deepEqual([shown, strangers], [[[uid(4), "static,static-c", true]], []]);
});

test("ignores containers without pod labels, and finds containers without a sandbox by their labels", () => {
  const { containers } = runtimeWith({ name: "orphan", uid: uid(1), node: "n1" });
  const bare = PodSandbox.fromPartial({ id: "0123456789abcdef", labels: {} });
  const { shown, strangers } = owned({ sandboxes: [bare], containers });
  assert.deepEqual(shown, [[uid(1), "orphan-c", false]]);
  assert.deepEqual(strangers, ["pod sandbox 0123456789abc in the runtime may not belong to this node"]);
});

test("a container gets its pod's grace period, but at least two seconds", () => {
  const { containers, sandboxes } = runtimeWith({ name: "mine", uid: uid(1), node: "n1" });
  const [container] = owned({ sandboxes, containers }).pods[0]?.containers ?? [];
  assert.deepEqual([container?.graceSeconds, container?.running, container?.name], [30, true, "main"]);
  const hasty = containers.map((each) => ({ ...each, annotations: {} }));
  assert.equal(owned({ sandboxes, containers: hasty }).pods[0]?.containers[0]?.graceSeconds, 2);
});
