import assert from "node:assert/strict";
import { test } from "node:test";
import { apiError } from "../../../src/api/api-error.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { createReachability } from "../../../src/node/reachability.ts";
import { type ReachableState, isReachable } from "../../../src/node/conditions.ts";
import { createValue } from "../../../src/state/values.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { silent } from "../api/fake-client.ts";

/** A node whose self-test gets the result or the error of `answer`. */
function started(answer: () => string, waiting: () => string | undefined = () => undefined) {
  const clock = fakeClock();
  const through: string[] = [];
  const asked: string[] = [];
  const changes: (string | undefined)[] = [];
  const stop = new AbortController();
  const { reader, writer } = createValue<ReachableState>();
  const reachability = createReachability({
    client: {
      text: async (path) => {
        asked.push(path);
        return Promise.resolve(answer());
      },
    },
    nodeName: "far",
    waiting,
    tunnels: () => through,
    reachable: writer,
    signals: { nodeChanged: { send: () => void changes.push(reader.get()?.reason) } },
    clock,
    log: silent,
  });
  const ended = reachability.run(stop.signal);
  return {
    through,
    clock,
    asked,
    changes,
    verdict: reader.get,
    async [Symbol.asyncDispose]() {
      stop.abort();
      await ended;
    },
  };
}
const refuse = (error: Error) => () => {
  throw error;
};

test("checks a reachable kubelet API every 5 minutes and reports it once", async () => {
  await using at = started(() => "ok");
  await at.clock.advance(0);
  assert.deepEqual(at.verdict(), {
    type: "KubeletReachable",
    status: "True",
    reason: "KubeletReachable",
    message: "the API server reaches the kubelet API",
  });
  await at.clock.advance(300_000);
  assert.deepEqual(at.asked, ["/api/v1/nodes/far/proxy/healthz", "/api/v1/nodes/far/proxy/healthz"]);
  assert.deepEqual(at.changes, ["KubeletReachable"]);
});

test("names the tunnels to the kubelet API, and reports changes", async () => {
  await using at = started(() => "ok");
  await at.clock.advance(0);
  at.through.push("10.0.0.1:6443", "10.0.0.2:6443");
  await at.clock.advance(300_000);
  assert.match(at.verdict()?.message ?? "", /through a tunnel \(from 10\.0\.0\.1:6443, 10\.0\.0\.2:6443\)$/);
  assert.deepEqual(at.changes, ["KubeletReachable", "KubeletReachable"]);
});

test("checks again within two seconds after the pending request is approved", async () => {
  let request: string | undefined = "node-csr-1";
  const answer = () => {
    if (request !== undefined) throw apiError(503, "x");
    return "ok";
  };
  await using at = started(answer, () => request);
  await at.clock.advance(10_000);
  assert.deepEqual([at.asked.length, at.changes], [1, ["CertificateNotApproved"]]);
  request = undefined;
  await at.clock.advance(2_000);
  assert.deepEqual([at.asked.length, at.changes], [2, ["CertificateNotApproved", "KubeletReachable"]]);
});

test("reports each failure with its own reason, and checks again soon", async () => {
  const faults: readonly [Error, string | undefined, string, RegExp][] = [
    [apiError(503, "x"), "node-csr-1", "CertificateNotApproved", /kubectl certificate approve node-csr-1$/],
    [apiError(401, "Unauthorized"), undefined, "ClientCertificateUntrusted", /clientCAFile/],
    [apiError(403, "no"), undefined, "NotPermitted", /get nodes\/proxy of far/],
    [apiError(502, "dial tcp 10.0.0.9:10250: i/o timeout"), undefined, "NoRoute", /i\/o timeout.*egressTunnel/],
    [new CodedError("deadline_exceeded", "no answer within 30000 ms"), undefined, "Timeout", /no answer within/],
  ];
  for (const [error, request, reason, message] of faults) {
    await using at = started(refuse(error), () => request);
    const early = reason === "NoRoute" || reason === "Timeout";
    await at.clock.advance(0);
    if (early) assert.equal(at.verdict(), undefined);
    await at.clock.advance(early ? 20_000 : 0);
    assert.equal(at.verdict()?.reason, reason);
    assert.match(at.verdict()?.message ?? "", message);
    assert.equal(at.verdict()?.status, reason === "NotPermitted" ? "Unknown" : "False");
    const asked = at.asked.length;
    await at.clock.advance(15_000);
    assert.equal(at.asked.length, asked + 1);
    assert.deepEqual(at.changes, [reason]);
  }
});

test("reports nothing about the kubelet API while the API server is unreachable", async () => {
  await using at = started(refuse(new CodedError("unavailable", "connection refused")));
  await at.clock.advance(0);
  assert.equal(at.verdict(), undefined);
  assert.deepEqual(at.changes, []);
});

test("does not report a missing Node as a failure, and retries immediately", async () => {
  let there = false;
  const notFound = apiError(
    404,
    JSON.stringify({ kind: "Status", reason: "NotFound", message: 'nodes "far" not found' }),
  );
  await using at = started(() => (there ? "ok" : refuse(notFound)()));
  await at.clock.advance(0);
  assert.equal(at.verdict(), undefined);
  there = true;
  await at.clock.advance(2_000);
  assert.deepEqual(at.changes, ["KubeletReachable"]);
  await using wrong = started(refuse(apiError(404, "page not found")));
  await wrong.clock.advance(20_000);
  assert.equal(wrong.verdict()?.reason, "NoRoute");
});

test("checks every two seconds while a new Pod's Service has no route, without a failure", async () => {
  let leads = false;
  await using at = started(() => (leads ? "ok" : refuse(apiError(503, "connect: connection refused"))()));
  await at.clock.advance(5_000);
  assert.deepEqual([at.verdict(), at.asked.length], [undefined, 3]);
  leads = true;
  await at.clock.advance(2_000);
  assert.deepEqual(at.changes, ["KubeletReachable"]);
  leads = false;
  await at.clock.advance(300_000);
  assert.equal(at.verdict()?.reason, "NoRoute", "later it is one at once");
});

test("reachability of the kubelet API is unknown before the first result, or if the result is unknown", () => {
  const state = (status: "True" | "False" | "Unknown") =>
    isReachable({ type: "KubeletReachable", status, reason: "KubeletReachable", message: "" });
  assert.deepEqual(
    [isReachable(undefined), state("Unknown"), state("True"), state("False")],
    [undefined, undefined, true, false],
  );
});
