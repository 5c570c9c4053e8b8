import assert from "node:assert/strict";
import { test } from "node:test";
import { NamespaceMode, RuntimeHandler } from "../../../src/gen/cri.ts";
import { createUserNamespaces } from "../../../src/runtime/user-namespace.ts";
import { aPod } from "../../fakes/pods.ts";
import { never } from "../../fakes/signals.ts";

const handler = (name: string, userNamespaces: boolean) =>
  RuntimeHandler.fromPartial({ name, features: { userNamespaces } });
const allHandlers = [handler("", true), handler("old", false)];

function namespacesWith(handlers: readonly RuntimeHandler[] | undefined) {
  return createUserNamespaces({
    runtimeClasses: { handler: async (name) => name },
    handlers: () => handlers,
    ids: { rangeOf: async () => ({ first: 131_072, length: 65_536 }) },
  });
}

test("a pod with hostUsers: false has its range for users and groups; others have the host's users", async () => {
  const of = namespacesWith(allHandlers);
  const ids = [{ hostId: 131_072, containerId: 0, length: 65_536 }];
  assert.deepEqual(await of(aPod({ hostUsers: false }), never), { mode: NamespaceMode.POD, uids: ids, gids: ids });
  for (const spec of [{}, { hostUsers: true }])
    assert.deepEqual(await of(aPod(spec), never), { mode: NamespaceMode.NODE, uids: [], gids: [] });
});

test("fails in the kubelet's words if the pod's handler does not support user namespaces", async () => {
  const messageOf = (handlers: readonly RuntimeHandler[] | undefined, runtimeClassName?: string) =>
    namespacesWith(handlers)(aPod({ hostUsers: false, ...(runtimeClassName && { runtimeClassName }) }), never).then(
      () => undefined,
      ({ message }: Error) => message,
    );
  const cannot = "can't set `spec.hostUsers: false`";
  assert.equal(await messageOf(undefined), `${cannot}, runtime does not support user namespaces`);
  assert.equal(await messageOf([handler("", false)]), `${cannot}, runtime does not support user namespaces`);
  assert.equal(
    await messageOf(allHandlers, "old"),
    `${cannot}, RuntimeClass handler "old" does not support user namespaces`,
  );
  assert.equal(
    await messageOf(allHandlers, "gone"),
    `${cannot}, RuntimeClass handler "gone" does not support user namespaces: the handler "gone" is not known`,
  );
});
