import assert from "node:assert/strict";
import { test } from "node:test";
import { createCapabilities } from "../../../../../providers/docker/engine/capabilities.ts";
import { createPodNetwork } from "../../../../../providers/docker/network/pod-network.ts";
import { runDockerSandbox } from "../../../../../providers/docker/sandbox/run.ts";
import { RunPodSandboxRequest } from "../../../../../src/gen/cri.ts";
import { nodeLabel } from "../../../../../src/pod/labels.ts";
import { type EngineCall, fakeEngine } from "../engine.ts";

const signal = () => AbortSignal.timeout(5000);
const request = RunPodSandboxRequest.fromPartial({
  config: { metadata: { name: "web", namespace: "default", uid: "uid-1", attempt: 0 } },
});

/** A daemon with networks; `refuse` decides about a sandbox's start. */
async function daemonWith(refuse: (network: string) => { status: number; message: string } | undefined) {
  const networks: string[] = [];
  const sandboxes = new Map<string, string>();
  let made = 0;
  const describe = (Id: string) => ({
    Id,
    Name: "graftlet-n1",
    Created: Id,
    Labels: { [nodeLabel]: "n1" },
    IPAM: { Config: [{ Subnet: "172.18.0.0/16" }] },
  });
  const engine = await fakeEngine(({ method, path, query, body }: EngineCall) => {
    const [, kind, id = ""] = path.split("/");
    if (kind === "info")
      return { status: 200, body: { ID: "d1", CgroupDriver: "cgroupfs", Runtimes: { runc: {}, runsc: {} } } };
    if (path === "/containers/json") return { status: 200, body: [] };
    if (path === "/networks/create") {
      networks.push(`net-${++made}`);
      return { status: 201, body: {} };
    }
    if (kind === "networks" && id === "") return { status: 200, body: networks.map(describe) };
    if (kind === "networks") return networks.includes(id) ? { status: 200, body: describe(id) } : { status: 404 };
    if (path === "/containers/create") {
      const Id = query.get("name") ?? `trial-${++made}`;
      sandboxes.set(Id, JSON.stringify(body));
      return { status: 201, body: { Id } };
    }
    if (method === "DELETE") return sandboxes.delete(id) ? { status: 204 } : { status: 404 };
    const network = networks.find((each) => sandboxes.get(id)?.includes(each)) ?? "none";
    const refused = id.startsWith("trial-") ? undefined : refuse(network);
    return refused ? { status: refused.status, body: { message: refused.message } } : { status: 204 };
  });
  const sandboxImage = { ensure: async () => "pause:1", verify: async () => true };
  const deps = {
    parts: engine.parts,
    network: createPodNetwork(engine.parts),
    capabilities: createCapabilities(engine.parts, sandboxImage),
    sandboxImage,
  };
  return { engine, deps, networks, sandboxes };
}

const name = "k8s_POD_web_default_uid-1_0";

test("starts a sandbox on the node's network, which is created once", async () => {
  const { engine, deps, networks, sandboxes } = await daemonWith(() => undefined);
  await using _ = engine;
  assert.equal(await runDockerSandbox(deps, request, signal()), name);
  assert.equal(networks.length, 1);
  assert.deepEqual([...sandboxes.keys()], [name]);
});

test("removes a sandbox that fails to start, and reports the daemon's message", async () => {
  const { engine, deps, sandboxes } = await daemonWith(() => ({ status: 500, message: "port is already allocated" }));
  await using _ = engine;
  await assert.rejects(runDockerSandbox(deps, request, signal()), { message: "port is already allocated" });
  assert.deepEqual([...sandboxes.keys()], []);
});

test("recreates a missing network, and then the sandbox", async () => {
  const { engine, deps, networks } = await daemonWith((network) =>
    network === "none" ? { status: 404, message: "network net-1 not found" } : undefined,
  );
  await using _ = engine;
  const first = await deps.network.ensure(signal());
  networks.length = 0;
  assert.equal(await runDockerSandbox(deps, request, signal()), name);
  assert.equal(networks.length, 1);
  assert.notEqual(networks[0], first);
});

test("looks up a missing image again, and creates the sandbox from the available one", async () => {
  let there = true;
  let looked = 0;
  const { engine, deps, sandboxes } = await daemonWith(() =>
    there ? undefined : { status: 404, message: "no such image" },
  );
  await using _ = engine;
  const sandboxImage = {
    async ensure() {
      looked += 1;
      if (looked === 2) there = true;
      return `pause:${looked}`;
    },
    verify: async () => there,
  };
  await runDockerSandbox(deps, request, signal());
  there = false;
  assert.equal(await runDockerSandbox({ ...deps, sandboxImage }, request, signal()), name);
  assert.match(sandboxes.get(name) ?? "", /"Image":"pause:2"/);
});

test("throws a not_found error caused by neither the network nor the image, without a retry", async () => {
  let starts = 0;
  const { engine, deps } = await daemonWith(() => {
    starts += 1;
    return { status: 404, message: "no such runtime" };
  });
  await using _ = engine;
  await assert.rejects(runDockerSandbox(deps, request, signal()), { code: "not_found" });
  assert.equal(starts, 1);
});

test("a runtime class's handler must be a runtime of the daemon; otherwise the pod is rejected with the remedy", async () => {
  const { engine, deps, sandboxes } = await daemonWith(() => undefined);
  await using _ = engine;
  for (const runtimeHandler of ["runsc", "io.containerd.kata.v2"]) {
    await runDockerSandbox(deps, { ...request, runtimeHandler }, signal());
    assert.match(sandboxes.get(name) ?? "", new RegExp(`"Runtime":"${runtimeHandler}"`));
    sandboxes.clear();
  }
  await assert.rejects(runDockerSandbox(deps, { ...request, runtimeHandler: "kata" }, signal()), {
    code: "invalid_argument",
    message: /^the handler "kata" of the pod's runtime class is not among the runtimes .* \(runc, runsc\): add it /,
  });
  assert.deepEqual([...sandboxes.keys()], []);
});

test("rejects a sandbox without metadata", async () => {
  const { engine, deps } = await daemonWith(() => undefined);
  await using _ = engine;
  await assert.rejects(runDockerSandbox(deps, RunPodSandboxRequest.fromPartial({}), signal()), {
    code: "invalid_argument",
  });
});
