import assert from "node:assert/strict";
import type { Cluster } from "../../harness/cluster.ts";

/** Checks on a real API server which patches of the Node edge-1 of release `edge` pass: of its account, and of the node itself. The Node is
 *  there, and no graftlet. */
export async function taintsAreKept(cluster: Cluster, namespace: string): Promise<void> {
  const account = `system:serviceaccount:${namespace}:edge-graftlet`;
  await cluster.mustKubectl(["create", "clusterrole", "looks-at-nodes", "--verb=get", "--resource=nodes"]);
  const binding = ["create", "clusterrolebinding", "looks-at-nodes", "--clusterrole=looks-at-nodes"];
  await cluster.mustKubectl([...binding, `--serviceaccount=${namespace}:edge-graftlet`]);
  await cluster.mustKubectl(["create", "clusterrole", "looks-at-status", "--verb=get", "--resource=nodes/status"]);
  const toNodes = ["--clusterrole=looks-at-status", "--group=system:nodes"];
  await cluster.mustKubectl(["create", "clusterrolebinding", "looks-at-status", ...toNodes]);
  await cluster.mustKubectl(["taint", "node", "edge-1", "other=one:NoSchedule"]);
  const record = "graftlet.dev/configured-taints";
  const patch = async (user: string, body: object, node = "edge-1") =>
    (await cluster.kubectl(["patch", "node", node, "--type=merge", `--patch=${JSON.stringify(body)}`, `--as=${user}`]))
      .stderr;
  const own = { key: "graftlet.dev/target", value: "edge-1", effect: "NoSchedule" };
  const former = { key: "former", effect: "NoExecute" };
  const other = { key: "other", value: "one", effect: "NoSchedule" };
  const right = (taints: readonly object[], keys = "graftlet.dev/target:NoSchedule") => ({
    metadata: { annotations: { [record]: keys } },
    spec: { taints },
  });
  const said = /must set the taints in nodes/;
  for (const [what, body, sentence] of [
    ["no taint", right([other]), said],
    ["another value", right([other, { ...own, value: "x" }]), said],
    ["a record of its own", right([other, own], "other:NoSchedule"), said],
    ["another's taint gone", right([own]), /not change taints that others have set/],
    ["one taint more", right([other, own, former]), /not change taints that others have set/],
    [
      "a label",
      { ...right([other, own]), metadata: { labels: { a: "b" }, ...right([]).metadata } },
      /only change the taints of a Node/,
    ],
    [
      "an annotation",
      { ...right([other, own]), metadata: { annotations: { a: "b", [record]: "graftlet.dev/target:NoSchedule" } } },
      /only change the taints of a Node/,
    ],
    [
      "a cordon",
      { ...right([]), spec: { taints: [other, own], unschedulable: true } },
      /only change the taints of a Node/,
    ],
  ] as const)
    assert.match(await patch(account, body), sentence, what);
  assert.equal(await patch(account, right([other, own])), "");
  // By the record of an earlier release, which the node itself cannot forge.
  const forged = { metadata: { annotations: { [record]: "graftlet.dev/target:NoSchedule,other:NoSchedule" } } };
  const asNode = ["--as=system:node:edge-1", "--as-group=system:nodes"];
  for (const part of [[], ["--subresource=status"]]) {
    const text = `--patch=${JSON.stringify(forged)}`;
    const { stderr } = await cluster.kubectl(["patch", "node", "edge-1", "--type=merge", text, ...part, ...asNode]);
    assert.match(stderr, /only graftlet's account may write the annotation/, part.join());
  }
  const { stderr } = await cluster.kubectl(["taint", "node", "edge-1", "own=x:NoSchedule", ...asNode]);
  assert.match(stderr, /node "edge-1" is not allowed to modify taints/);
  await cluster.mustKubectl(["annotate", "--overwrite", "node", "edge-1", `${record}=former:NoExecute`]);
  await cluster.mustKubectl(["taint", "node", "edge-1", "former:NoExecute"]);
  assert.equal(await patch(account, right([other, own])), "");
  assert.match(await patch(account, right([]), "stranger"), /forbidden/);
}
