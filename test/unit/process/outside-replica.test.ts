import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { stringify } from "yaml";
import { defaultConfiguration } from "../../../src/config/kubelet-configuration.ts";
import type { OptionsOf } from "../../../src/config/parse-result.ts";
import { type OutsideReplica, runOutsideReplica } from "../../../src/process/outside-replica.ts";

interface Answers {
  readonly username: string;
  /** HTTP status for the ConfigMap. */
  readonly status?: number;
  readonly data?: object;
}

const account = "system:serviceaccount:graftlet:edge-graftlet.site-a";

/** Runs a replica beside an API server that knows its user and a ConfigMap. */
async function start(t: TestContext, { username, status = 200, data = { "nodes.yaml": "the text" } }: Answers) {
  const paths: string[] = [];
  const server = createServer((request, response) => {
    paths.push(request.url ?? "");
    response.setHeader("content-type", "application/json");
    const isReview = request.url?.includes("selfsubjectreviews");
    response.statusCode = isReview ? 201 : status;
    const review = { status: { userInfo: { username, uid: "0123" } } };
    response.end(JSON.stringify(isReview ? review : status === 200 ? { data } : { kind: "Status", message: "no" }));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const directory = mkdtempSync(join(tmpdir(), "graftlet-outside-"));
  t.after(() => {
    server.closeAllConnections();
    server.close();
    rmSync(directory, { recursive: true, force: true });
  });
  const kubeconfig = join(directory, "kubeconfig");
  const { port } = server.address() as AddressInfo;
  writeFileSync(
    kubeconfig,
    stringify({
      apiVersion: "v1",
      kind: "Config",
      clusters: [{ name: "c", cluster: { server: `http://127.0.0.1:${port}` } }],
      users: [{ name: "u", user: { token: "t" } }],
      contexts: [{ name: "x", context: { cluster: "c", user: "u" } }],
      "current-context": "x",
    }),
  );
  const runs: OutsideReplica[] = [];
  const completed: string[] = [];
  const ended = runOutsideReplica({
    namespace: "graftlet",
    release: "edge",
    kubeconfig,
    logging: defaultConfiguration().logging,
    complete(source, configuration) {
      completed.push(`${source}: ${configuration}`);
      return {} as OptionsOf<"run">;
    },
    async run({ outside }) {
      runs.push(outside);
      return true;
    },
    signal: AbortSignal.timeout(20_000),
  });
  return { ended, runs, completed, paths };
}

test("a replica has the name and the UID of its account, and the configuration of the release", async (t) => {
  const { ended, runs, completed, paths } = await start(t, { username: account });
  assert.equal(await ended, true);
  assert.deepEqual(completed, ["ConfigMap graftlet/edge-graftlet.site-a: the text"]);
  assert.equal(paths.at(-1), "/api/v1/namespaces/graftlet/configmaps/edge-graftlet.site-a");
  const [{ replica, account: own } = assert.fail()] = runs;
  assert.match(replica.uid, /^0123\.[0-9a-f]{8}$/);
  assert.deepEqual([replica.name, replica.accountUID], ["edge-graftlet.site-a", "0123"]);
  assert.deepEqual([own.namespace(), own.pod()], ["graftlet", undefined]);
});

test("refuses other users, and accounts that the release does not know, in one sentence", async (t) => {
  const refusal = async (answers: Answers) => {
    const { ended, runs } = await start(t, answers);
    const error = await ended.then(
      () => undefined,
      (reason: unknown) => reason,
    );
    assert.deepEqual(runs, []);
    assert.ok(error instanceof Error);
    return error.message;
  };
  assert.match(await refusal({ username: "admin" }), /^kubeconfig \S+ is that of admin: --fleet needs a token of /);
  assert.match(await refusal({ username: "system:serviceaccount:other:x" }), /needs a token of .* namespace graftlet,/);
  const unknown = /^ServiceAccount edge-graftlet\.site-a may not read ConfigMap .* none of fleet\.outsideReplicas of/;
  assert.match(await refusal({ username: account, status: 403 }), unknown);
  assert.match(await refusal({ username: account, status: 404 }), unknown);
  assert.match(await refusal({ username: account, data: {} }), unknown);
});
