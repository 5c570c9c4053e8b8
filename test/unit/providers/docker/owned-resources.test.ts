import assert from "node:assert/strict";
import { test } from "node:test";
import { dockerOwnedResources } from "../../../../providers/docker/owned-resources.ts";
import { type EngineCall, fakeEngine } from "./engine.ts";

const { signal } = new AbortController();

const filterOf = ({ query }: EngineCall, name: string): string =>
  (JSON.parse(query.get("filters") ?? "{}") as Record<string, string[]>)[name]?.[0] ?? "";

/** A daemon with a probe container and a network of node n1, and the image built by graftlet. */
function engineWith({ user, attached = false }: { readonly user?: string; readonly attached?: boolean } = {}) {
  return fakeEngine((call) => {
    const { method, path } = call;
    if (method === "DELETE" && path.startsWith("/networks/") && attached)
      return { status: 403, body: { message: "network has active endpoints" } };
    if (method === "DELETE") return { status: 200, body: [] };
    if (path === "/networks")
      return {
        status: 200,
        body: filterOf(call, "label") === "graftlet.dev/node=n1" ? [{ Id: "n", Name: "net" }] : [],
      };
    if (path === "/images/graftlet.dev/pause:1/json") return { status: 200, body: { Id: "sha256:p", Size: 1 } };
    if (path === "/containers/json" && filterOf(call, "label") === "graftlet.dev/trial=n1")
      return { status: 200, body: [{ Id: "trial-container-1" }] };
    if (path === "/containers/json" && filterOf(call, "ancestor") === "sha256:p" && user !== undefined)
      return {
        status: 200,
        body: [{ Id: "c", ImageID: "sha256:p", Names: ["/c"], Labels: { "graftlet.dev/node": user } }],
      };
    return { status: 200, body: [] };
  });
}

test("lists leftover probe containers, the node's networks, and the image built by graftlet", async () => {
  await using engine = await engineWith();
  const all = await dockerOwnedResources(engine.parts, signal);
  assert.deepEqual(
    all.map(({ name }) => name),
    ["probe container (trial-contain)", "Docker network net", "Docker image graftlet.dev/pause:1"],
  );
  for (const each of all) await each.remove(signal);
  assert.deepEqual(
    engine.calls.filter(({ method }) => method === "DELETE").map(({ path }) => path),
    ["/containers/trial-container-1", "/networks/n", "/images/graftlet.dev/pause:1"],
  );
});

test("lists the image unless another node's container uses it", async () => {
  for (const [user, listed] of [
    ["n2", false],
    ["n1", true],
  ] as const) {
    await using engine = await engineWith({ user });
    const names = (await dockerOwnedResources(engine.parts, signal)).map(({ name }) => name);
    assert.equal(names.includes("Docker image graftlet.dev/pause:1"), listed, user);
  }
});

test("keeps a network with an attached foreign container, with the daemon's message", async () => {
  await using engine = await engineWith({ attached: true });
  const network = (await dockerOwnedResources(engine.parts, signal)).find(({ name }) => name === "Docker network net");
  await assert.rejects(Promise.resolve(network?.remove(signal)), { message: /active endpoints/ });
});
