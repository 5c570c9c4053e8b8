import assert from "node:assert/strict";
import { test } from "node:test";
import { apiError } from "../../../src/api/api-error.ts";
import type { HostFacts } from "../../../src/host/facts.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { addressList, chooseAddresses } from "../../../src/node/node-agent.ts";
import { newNode, nodeImages } from "../../../src/node/node-object.ts";
import { register } from "../../../src/node/registration.ts";
import type { Node } from "../../../src/objects.ts";
import { Image } from "../../../src/gen/cri.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { never } from "../../fakes/signals.ts";
import { type Call, fakeClient, silent } from "../api/fake-client.ts";

const facts = { operatingSystem: "linux", architecture: "amd64" } as HostFacts;
const ownLabels: Readonly<Record<string, string>> = { zone: "a" };
const identity = {
  nodeName: "n1",
  labels: ownLabels,
  annotations: { own: "one" },
  taints: [{ key: "k", effect: "NoSchedule" }],
  providerID: "",
};
const labels = {
  "beta.kubernetes.io/arch": "amd64",
  "beta.kubernetes.io/os": "linux",
  "kubernetes.io/arch": "amd64",
  "kubernetes.io/hostname": "n1",
  "kubernetes.io/os": "linux",
};
const annotations = { "volumes.kubernetes.io/controller-managed-attach-detach": "true" };

interface RunOptions {
  readonly clock?: ReturnType<typeof fakeClock>;
  readonly anew?: boolean;
  readonly own?: Readonly<Record<string, string>>;
  readonly given?: Readonly<Record<string, string>>;
  readonly measured?: string[];
}

async function run(
  answer: (call: Call) => unknown,
  {
    clock = fakeClock(),
    anew = true,
    own = identity.labels,
    given = identity.annotations,
    measured = [] as string[],
  }: RunOptions = {},
) {
  const client = fakeClient(answer);
  const measures = {
    registering: () => void measured.push("registering"),
    registered: () => void measured.push("registered"),
  };
  const deps = {
    client,
    identity: { ...identity, labels: own, annotations: given },
    startsAnew: async () => anew,
    measures,
    clock,
    log: silent,
  };
  const done = register(deps, facts, () => ({}), never);
  await clock.advance(20_000);
  await done;
  return client.calls;
}

test("creates the Node with its labels, taints and annotation", async () => {
  const measured: string[] = [];
  const answer = (call: Call) => {
    if (call.verb === "get") throw apiError(404, JSON.stringify({ kind: "Status", reason: "NotFound" }));
    return {};
  };
  const [, create] = await run(answer, { measured });
  assert.ok(create);
  assert.deepEqual(measured, ["registering", "registered"]);
  const { metadata, spec } = create.body as Node;
  assert.deepEqual(metadata, {
    name: "n1",
    labels: { ...labels, zone: "a" },
    annotations: { ...annotations, own: "one" },
  });
  assert.deepEqual(spec, { taints: [{ key: "k", effect: "NoSchedule" }] });
});

test("creates a Node from a configuration file with the configured metadata, and records which metadata was configured", () => {
  const taints = [{ key: "k", effect: "NoSchedule" }];
  const configured = { labels: { zone: "a" }, annotations: { "example.org/rack": "7" }, taints };
  const { metadata } = newNode({ ...identity, configured }, facts, {});
  assert.deepEqual(metadata.annotations, {
    ...annotations,
    ...identity.annotations,
    "example.org/rack": "7",
    "graftlet.dev/configured": '{"labels":["zone"],"annotations":["example.org/rack"]}',
    "graftlet.dev/configured-taints": "k:NoSchedule",
  });
});

test("reconciles default labels and the annotation of an existing node, but not the command line's settings", async () => {
  const calls = await run((call) =>
    call.verb === "get"
      ? { metadata: { name: "n1", labels: { ...labels, "kubernetes.io/hostname": "other", mine: "stays" } } }
      : {},
  );
  assert.deepEqual(
    calls.map(({ verb }) => verb),
    ["get", "patch"],
  );
  assert.deepEqual(calls[1]?.body, { metadata: { labels: { "kubernetes.io/hostname": "n1" }, annotations } });
});

test("takes over a node that somebody else creates at the same time", async () => {
  let isThere = false;
  const calls = await run((call) => {
    if (call.verb === "get" && isThere) return { metadata: { name: "n1", labels, annotations } };
    if (call.verb === "get") throw apiError(404, JSON.stringify({ kind: "Status", reason: "NotFound" }));
    isThere = true;
    throw apiError(409, JSON.stringify({ kind: "Status", reason: "AlreadyExists" }));
  });
  assert.deepEqual(
    calls.map(({ verb }) => verb),
    ["get", "create", "get"],
  );
});

test("applies name and topology labels from the command line to an existing node", async () => {
  const shown = { ...labels, "topology.kubernetes.io/zone": "a", "topology.kubernetes.io/region": "r" };
  const own = {
    "kubernetes.io/hostname": "other",
    "topology.kubernetes.io/zone": "b",
    "topology.kubernetes.io/region": "",
    "node.kubernetes.io/instance-type": "big",
    "example.org/rack": "7",
  };
  const answer = () => {
    return { metadata: { name: "n1", labels: shown, annotations } };
  };
  const calls = await run(answer, { own });
  assert.deepEqual(calls[1]?.body, {
    metadata: {
      labels: {
        "kubernetes.io/hostname": "other",
        "topology.kubernetes.io/zone": "b",
        "topology.kubernetes.io/region": null,
        "node.kubernetes.io/instance-type": "big",
      },
    },
  });
});

test("does not patch a node that is up to date", async () => {
  const calls = await run(() => ({ metadata: { name: "n1", labels, annotations } }));
  assert.deepEqual(
    calls.map(({ verb }) => verb),
    ["get"],
  );
});

test("annotates an existing node with the addresses for a cloud controller, and removes stale ones", async () => {
  const patched = async (given: Readonly<Record<string, string>>, shown: Readonly<Record<string, string>>) => {
    const answer = () => {
      return { metadata: { name: "n1", labels, annotations: { ...annotations, ...shown } } };
    };
    return (await run(answer, { given })).at(-1)?.body;
  };
  const provided = { "alpha.kubernetes.io/provided-node-ip": "10.0.0.1" };
  assert.deepEqual(await patched(provided, {}), { metadata: { labels: {}, annotations: provided } });
  assert.equal(await patched(provided, provided), undefined);
  const removed = { "alpha.kubernetes.io/provided-node-ip": null };
  assert.deepEqual(await patched({}, provided), { metadata: { labels: {}, annotations: removed } });
});

test("with a cloud controller, shows the addresses that the controller has set, and before that only those of --node-ip", () => {
  const shownWith = (nodeIPs: readonly string[], addresses: { type: string; address: string }[]) =>
    addressList(
      {
        settings: { nodeName: "n1", nodeIPs, cloudProvider: true },
        nodes: { node: () => ({ metadata: { name: "n1" }, status: { addresses } }) },
      },
      ["10.0.0.2"],
      false,
    );
  const [internal, external] = ["InternalIP", "ExternalIP"].map((type) => ({ type, address: "10.0.0.2" }));
  assert.ok(internal && external);
  assert.deepEqual(shownWith([], []), [{ type: "Hostname", address: "n1" }]);
  assert.deepEqual(shownWith(["10.0.0.2"], []), [internal]);
  assert.deepEqual(shownWith([], [external]), [external]);
});

test("zeroes extended resources on a new target, and keeps them on the same one", async () => {
  const shown = { cpu: "2", "example.com/gpu": "4", "example.com/none": "0", "hugepages-2Mi": "2Mi" };
  const answer = () => {
    return { metadata: { name: "n1", labels, annotations }, status: { capacity: shown, allocatable: shown } };
  };
  const none = { "example.com/gpu": "0" };
  const patch = (await run(answer)).at(-1);
  assert.match(patch?.path ?? "", /\/nodes\/n1\/status$/);
  assert.deepEqual(patch?.body, { status: { capacity: none, allocatable: none } });
  assert.equal((await run(answer, { anew: false })).at(-1)?.verb, "get");
});

test("retries until the API server is reachable", async () => {
  let tries = 0;
  await run(() => {
    if (++tries < 5) throw new CodedError("unavailable", "refused");
    return { metadata: { name: "n1", labels, annotations } };
  });
  assert.equal(tries, 5);
});

test("uses the configured addresses, or otherwise one target address of the requested family", () => {
  assert.deepEqual(chooseAddresses(["10.1.1.1", "fd00::1"], []), ["10.1.1.1", "fd00::1"]);
  assert.deepEqual(chooseAddresses([], ["fd00::2", "10.0.0.2", "10.0.0.3"]), ["10.0.0.2"]);
  assert.deepEqual(chooseAddresses(["::"], ["10.0.0.2", "fd00::2"]), ["fd00::2"]);
  assert.deepEqual(chooseAddresses(["0.0.0.0"], ["10.0.0.2"]), ["10.0.0.2"]);
  assert.throws(() => chooseAddresses([], []), { code: "failed_precondition" });
});

test("lists only named images, largest first, with at most five names each, digests before tags", () => {
  const image = (size: bigint, repoTags: string[], repoDigests: string[] = []) =>
    Image.fromPartial({ size, repoTags, repoDigests });
  const images = [image(1n, ["small"]), image(9n, ["t1", "t2", "t3", "t4", "t5"], ["d1"]), image(5n, [])];
  assert.deepEqual(nodeImages(images, 50), [
    { names: ["d1", "t1", "t2", "t3", "t4"], sizeBytes: 9 },
    { names: ["small"], sizeBytes: 1 },
  ]);
  assert.equal(nodeImages(images, 1).length, 1);
  assert.equal(nodeImages(images, -1).length, 2);
});
