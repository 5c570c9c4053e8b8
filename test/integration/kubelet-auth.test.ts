import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { startGraftlet } from "../harness/agent.ts";
import { type Lab, startLab } from "../harness/lab.ts";
import { authenticationTests } from "./kubelet-auth/authentication.ts";
import { authorizationTests } from "./kubelet-auth/authorization.ts";
import { type Callers, createCallers, log } from "./kubelet-auth/callers.ts";
import { floodTests } from "./kubelet-auth/floods.ts";
import { servedTests } from "./kubelet-auth/served.ts";

/** The kubelet API asked directly, on its own port.
 *  @see https://kubernetes.io/docs/reference/access-authn-authz/kubelet-authn-authz/ */
let running: { lab: Lab; callers: Callers } | undefined;
const up = (): { lab: Lab; callers: Callers } => {
  if (!running) throw new Error("the lab is not up");
  return running;
};
const lab = (): Lab => up().lab;
const callers = (): Callers => up().callers;
before(async () => {
  await using stack = new AsyncDisposableStack();
  const started = stack.use(await startLab("kubelet-auth"));
  const { pods } = started;
  await pods.create("target", {
    containers: [{ command: ["sh", "-c", "echo hello from the log; exec sleep infinity"] }],
  });
  running = { lab: started, callers: await createCallers(started) };
  await pods.ready("target");
  stack.move();
});
after(() => running?.lab[Symbol.asyncDispose]());

authenticationTests(lab, callers);
authorizationTests(lab, callers);
servedTests(lab, callers);
floodTests(lab, callers);

test("kubelet API with anonymous authentication, and without debugging handlers", async () => {
  const { cluster, agent } = lab();
  assert.ok(await agent.stop());
  const authentication = {
    anonymous: { enabled: true },
    webhook: { enabled: true },
    x509: { clientCAFile: join(cluster.layout.pki, "ca.crt") },
  };
  await using _agent = await startGraftlet(cluster, { config: { authentication, enableDebuggingHandlers: false } });
  await cluster.waitFor(
    "the kubelet API of the second agent",
    async () => (await callers().ask("/healthz", callers().admin)).status === 200,
  );
  assert.deepEqual(await callers().ask("/pods"), {
    status: 403,
    body: "Forbidden (user=system:anonymous, verb=get, resource=nodes, subresource(s)=[pods proxy])\n",
  });
  assert.deepEqual(await callers().ask("/pods", { token: "made.up.token" }), { status: 401, body: "Unauthorized" });
  for (const path of [
    log,
    "/exec/default/target/main?command=id&output=1",
    "/runningpods/",
    "/portForward/default/target",
  ])
    assert.deepEqual(await callers().ask(path, callers().admin), {
      status: 405,
      body: "Debug endpoints are disabled.\n",
    });
  assert.equal((await callers().ask("/pods", callers().admin)).status, 200);
  const { code, stderr } = await cluster.kubectl(["logs", "target"]);
  assert.equal(code, 1);
  assert.match(stderr, /MethodNotAllowed/);
});
