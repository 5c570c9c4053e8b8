import { CodedError } from "../../../src/lib/errors.ts";
import type { CSINode, Node } from "../../../src/objects.ts";
import { fakeClient, type FakeClient } from "../api/fake-client.ts";

/** API server with one Node and its CSINode. */
export interface Api {
  readonly client: FakeClient;
  node: Node;
  csiNode: CSINode | undefined;
  /** Names of CSIDriver objects. */
  readonly drivers: Set<string>;
  /** Thrown by the next calls, one error per call. */
  readonly failures: Error[];
}

/** Creates the server, with a Node `n` (UID `u1`) and no CSINode. */
export function apiServer(): Api {
  const api: Api = {
    node: { metadata: { name: "n", uid: "u1", labels: { zone: "a" } } },
    csiNode: undefined,
    drivers: new Set(["d", "c"]),
    failures: [],
    client: fakeClient(({ verb, path, body }) => {
      const failure = api.failures.shift();
      if (failure) throw failure;
      const driver = path.split("/csidrivers/")[1];
      if (driver !== undefined) {
        if (api.drivers.has(driver)) return { metadata: { name: driver, uid: "u" }, spec: {} };
        throw new CodedError("not_found", `csidrivers.storage.k8s.io "${driver}" not found`);
      }
      const ofNode = path.startsWith("/api/v1/nodes/");
      if (verb === "get" && ofNode) return api.node;
      if (verb === "patch" && ofNode) return (api.node = patched(api.node, body as Pick<Node, "metadata">));
      if (verb === "create" || verb === "update") return (api.csiNode = body as CSINode);
      const found = api.csiNode;
      if (!found) throw new CodedError("not_found", 'csinodes.storage.k8s.io "n" not found');
      if (verb === "delete") api.csiNode = undefined;
      return found;
    }),
  };
  return api;
}

function patched(node: Node, { metadata }: Pick<Node, "metadata">): Node {
  const merged = (field: "labels" | "annotations") =>
    Object.fromEntries(
      Object.entries({ ...node.metadata[field], ...metadata[field] }).filter(([, value]) => value !== null),
    );
  return { ...node, metadata: { ...node.metadata, labels: merged("labels"), annotations: merged("annotations") } };
}
