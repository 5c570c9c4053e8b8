import assert from "node:assert/strict";
import { test } from "node:test";
import { createNamed } from "../../../../../providers/docker/container/create-named.ts";
import { containerType } from "../../../../../providers/docker/container/names.ts";
import { nodeLabel } from "../../../../../src/pod/labels.ts";
import { type EngineCall, fakeEngine } from "../engine.ts";
import { createdState, inspection } from "../inspection.ts";

const name = "k8s_main_web_default_uid-1_0";
const signal = () => AbortSignal.timeout(5000);

/** A daemon on which a container of `owner` has the name, and this node's containers have the given names. */
function engineWith(owner: string | undefined, ours: readonly string[] = []) {
  return fakeEngine(({ method, path, query }: EngineCall) => {
    if (method === "POST" && query.get("name") === name)
      return { status: 409, body: { message: `Conflict. The container name "/${name}" is already in use` } };
    if (method === "POST") return { status: 201, body: { Id: "new", Warnings: [] } };
    if (path === "/containers/json") return { status: 200, body: ours.map((one) => ({ Names: [`/${one}`] })) };
    if (owner === undefined) return { status: 404, body: { message: "No such container" } };
    const labels = owner === "" ? { [nodeLabel]: "" } : { [nodeLabel]: owner };
    return { status: 200, body: inspection("holder", containerType, createdState, labels) };
  });
}

test("uses a free name unchanged", async () => {
  await using engine = await fakeEngine(() => ({ status: 201, body: { Id: "new", Warnings: null } }));
  assert.equal(await createNamed(engine.parts, name, { Image: "busybox" }, signal()), "new");
  assert.equal(engine.calls[0]?.query.get("name"), name);
  assert.deepEqual(engine.calls[0]?.body, { Image: "busybox" });
});

test("reports already_exists if a container of this node has the name", async () => {
  await using engine = await engineWith("n1");
  await assert.rejects(createNamed(engine.parts, name, {}, signal()), { code: "already_exists" });
});

test("if a foreign container has the name, ours gets a suffix, once", async () => {
  for (const owner of ["", "n2"]) {
    await using engine = await engineWith(owner);
    assert.equal(await createNamed(engine.parts, name, {}, signal()), "new");
    assert.deepEqual(
      engine.calls.filter(({ method }) => method === "POST").map(({ query }) => query.get("name")),
      [name, `${name}_00000000`],
    );
  }
  await using again = await engineWith("n2", [`${name}_1f1ab2f5`]);
  await assert.rejects(createNamed(again.parts, name, {}, signal()), { code: "already_exists" });
});

test("reports a conflict with another cause unchanged", async () => {
  await using engine = await engineWith(undefined);
  await assert.rejects(createNamed(engine.parts, name, {}, signal()), { code: "conflict", message: /already in use/ });
});
