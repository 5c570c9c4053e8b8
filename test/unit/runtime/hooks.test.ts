import assert from "node:assert/strict";
import { type IncomingMessage, type RequestListener, createServer } from "node:http";
import { createServer as createHttps } from "node:https";
import { type TestContext, test } from "node:test";
import { CodedError } from "../../../src/lib/errors.ts";
import { createHooks } from "../../../src/runtime/hooks.ts";
import { selfSigned } from "../../fakes/certificate.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { eventLines } from "../../fakes/events.ts";
import { aContainer, aPod } from "../../fakes/pods.ts";
import { never } from "../../fakes/signals.ts";
import { freePort, listen } from "../../harness/ports.ts";
import { loopbackHost } from "../probes/loopback.ts";

function rig(answer = { exitCode: 0, stdout: "", stderr: "" }) {
  const clock = fakeClock();
  const events = eventLines();
  const host = loopbackHost();
  const ran: unknown[] = [];
  const runtime = {
    execSync: async (id: string, argv: readonly string[], timeout: number) => {
      ran.push([id, argv, timeout]);
      return { ...answer, stdout: Buffer.from(answer.stdout), stderr: Buffer.from(answer.stderr) };
    },
  };
  const counts: string[] = [];
  const measures = {
    fellBackToHttp: () => void counts.push("HTTP"),
    sleepCutOff: () => void counts.push("sleep"),
  };
  const hooks = createHooks({ clock, events, measures, host, runtime });
  const target = {
    pod: aPod(),
    container: aContainer("c", { ports: [{ name: "web", containerPort: 80 }] }),
    containerId: "id",
    podIP: "10.0.0.7",
  };
  return { clock, counts, measures, events, host, ran, target, run: hooks.run };
}

async function serve(t: TestContext, handle: RequestListener): Promise<number> {
  const server = createServer(handle);
  t.after(() => server.closeAllConnections());
  t.after(() => server.close());
  return listen(server);
}

test("exec: runs the command verbatim, without a timeout", async () => {
  const { ran, target, run } = rig();
  await run({ exec: { command: ["sh", "-c", "echo $(HOME)"] } }, target, never);
  assert.deepEqual(ran, [["id", ["sh", "-c", "echo $(HOME)"], 0]]);
});

test("exec: a failed command is reported in the kubelet's words", async () => {
  const { target, run } = rig({ exitCode: 3, stdout: "out", stderr: "err" });
  await assert.rejects(run({ exec: { command: ["a", "b"] } }, target, never), {
    message:
      `Exec lifecycle hook ([a b]) for Container "c" in Pod "p_default(uid-1)" failed - ` +
      `error: command 'a b' exited with 3: err, message: "outerr"`,
  });
});

test("exec: errors have the runtime's code and the output in Go quoting", async () => {
  const { target, run } = rig();
  const noShell = async () => Promise.reject(new CodedError("unknown", 'exec: "sh": not found'));
  const hooks = createHooks({ ...rig(), runtime: { execSync: noShell } });
  await assert.rejects(hooks.run({ exec: { command: ["sh"] } }, target, never), {
    message:
      `Exec lifecycle hook ([sh]) for Container "c" in Pod "p_default(uid-1)" failed - ` +
      `error: rpc error: code = Unknown desc = exec: "sh": not found, message: ""`,
  });
  const coloured = rig({ exitCode: 1, stdout: "\u001b[31mno\n", stderr: "" });
  await assert.rejects(coloured.run({ exec: { command: ["sh"] } }, target, never), /message: "\\x1b\[31mno\\n"$/);
  await run({ exec: { command: ["sh"] } }, target, never);
});

test("exec: the output of a failed command is truncated for the pod's status", async () => {
  const { target, run } = rig({ exitCode: 1, stdout: "o".repeat(2 ** 20), stderr: "e".repeat(2 ** 20) });
  const failure = await run({ exec: { command: ["a"] } }, target, never).catch((error: Error) => error.message);
  assert.match(failure ?? "", /exited with 1: e{10240}, message: "o{10240}"$/);
});

test("httpGet: sends the kubelet's request; any response is a success, no response is a failure", async (t) => {
  const seen: IncomingMessage[] = [];
  const port = await serve(t, (request, response) => {
    seen.push(request);
    response.writeHead(500).end();
  });
  const { host, target, run } = rig();
  await run({ httpGet: { port, path: "/bye?now" } }, target, never);
  assert.deepEqual(
    [seen[0]?.url, seen[0]?.headers["user-agent"], host.dialled],
    ["/bye?now", "kube-lifecycle/1.36", [{ host: "10.0.0.7", port }]],
  );
  const dead = await freePort();
  await assert.rejects(
    run({ httpGet: { port: dead, path: "/x" } }, target, never),
    /^Error: HTTP lifecycle hook \(\/x\) for Container "c" in Pod "p_default\(uid-1\)" failed - error: Get "http:/,
  );
});

test("httpGet: HTTPS accepts any certificate; falls back to plain HTTP, with an event", async (t) => {
  const asked: string[] = [];
  const { key, cert } = selfSigned("pod");
  const secure = createHttps({ key, cert }, (_request, response) => {
    asked.push("https");
    response.end();
  });
  t.after(() => secure.closeAllConnections());
  t.after(() => secure.close());
  const { counts, events, target, run } = rig();
  await run({ httpGet: { port: await listen(secure), scheme: "HTTPS" } }, target, never);
  assert.deepEqual([asked, events.lines], [["https"], []]);

  const heard: (string | undefined)[] = [];
  const plain = await serve(t, (request, response) => {
    heard.push(request.headers.authorization);
    response.end();
  });
  const httpHeaders = [{ name: "Authorization", value: "Basic c2VjcmV0" }];
  await run({ httpGet: { port: plain, scheme: "HTTPS", httpHeaders } }, target, never);
  assert.deepEqual(heard, [undefined]);
  assert.deepEqual(events.lines, [
    `Warning LifecycleHTTPFallback request to HTTPS lifecycle hook 10.0.0.7:${plain} got HTTP response, retry with HTTP succeeded`,
  ]);
  assert.deepEqual(counts, ["HTTP"]);
});

test("httpGet: fails without a pod IP", async () => {
  const { target, run } = rig();
  await assert.rejects(
    run({ httpGet: { port: "web" } }, { ...target, podIP: undefined }, never),
    /the pod has no address/,
  );
});

test("sleep: lasts its duration, or until the grace period ends", async () => {
  const { clock, counts, target, run } = rig();
  let over = false;
  const sleeping = run({ sleep: { seconds: 5 } }, target, never).then(() => (over = true));
  await clock.advance(4999);
  assert.equal(over, false);
  await clock.advance(1);
  await sleeping;
  assert.deepEqual(counts, []);
  const stop = new AbortController();
  const cut = run({ sleep: { seconds: 5 } }, target, stop.signal);
  stop.abort();
  await assert.rejects(cut, /Sleep lifecycle hook \(5\)/);
  assert.deepEqual(counts, ["sleep"]);
});
