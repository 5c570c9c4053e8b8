import assert from "node:assert/strict";
import { once } from "node:events";
import { join } from "node:path";
import { type Agent, startGraftlet } from "./agent.ts";
import { startApiProxy } from "./api-proxy.ts";
import type { Cluster } from "./cluster.ts";
import { converse } from "./conversation.ts";
import { type Pods, shell, statusOf } from "./pods.ts";
import { firstLine, signalProcess } from "./processes.ts";
import { isRemote } from "./runtime-daemon.ts";
import { sshdProcesses } from "./sshd.ts";

/** How long graftlet may take to end, whatever hangs, milliseconds: over SSH until it notices that the link is dead, 10.5 s after the last
 *  answer at the latest, and a few seconds for its end itself on a machine that runs other tests. */
const endWithinMs = { near: 10_000, remote: 15_000 };

/** On connections: /switch is answered with 101, everything else not at all; none is ever closed. */
const silentServer = `require("net").createServer((socket) => socket.on("error", () => {}).once("data", (head) => {
  if (String(head).startsWith("GET /switch")) socket.write("HTTP/1.1 101 Switching Protocols\\r\\nConnection: Upgrade\\r\\nUpgrade: x\\r\\n\\r\\n");
})).listen(0, "127.0.0.1", function () { console.log(this.address().port); })`;

/** Sends a kubelet API a request that it has to ask the API server about. */
const reviewed = (address: string) =>
  `require("https").get({ host: "${address}", port: 10250, path: "/pods", rejectUnauthorized: false, headers: { Authorization: "Bearer nobody-knows" } }).on("error", () => {}).on("finish", () => console.log("asked"))`;

/** Runs graftlet on a cluster on which nobody runs it, has probes, hooks, a pull, streams and reviews hang, and in the end its API
 *  server and the link to its target, and expects that it ends by itself all the same. */
export async function endsWhileAllHangs({
  cluster,
  pods,
}: {
  readonly cluster: Cluster;
  readonly pods: Pods;
}): Promise<void> {
  await using stack = new AsyncDisposableStack();
  const start = (spawn: Cluster["spawnInside"], argv: readonly string[]) => firstWord(stack, spawn, argv);
  const port = Number(await start(cluster.spawnInside, [process.execPath, "--eval", silentServer]));
  const registry = await start(cluster.spawnInside, [
    process.execPath,
    join(import.meta.dirname, "faulty-registry.ts"),
  ]);
  const proxy = stack.use(await startApiProxy(cluster));
  const agent: Agent = stack.use(await startGraftlet(cluster, { kubeconfig: proxy.kubeconfig }));
  await makePods(pods, port, `127.0.0.1:${registry}`);
  for (const args of [
    ["exec", "--stdin", "talking", "--", "cat"],
    ["attach", "--stdin", "talking"],
    ["logs", "--follow", "talking"],
  ]) {
    const stream = stack.use(converse(cluster.startKubectl(args)));
    if (args[0] === "exec") stream.write("hello\n");
    await stream.says(args[0] === "exec" ? "hello" : "word");
  }
  const forward = stack.use(converse(cluster.startKubectl(["port-forward", "talking", ":8080"])));
  await forward.says("Forwarding from");
  await proxy.swallow();
  await start(cluster.spawnAtAgent, [process.execPath, "--eval", reviewed(cluster.agentAddress)]);
  if (isRemote(cluster.provider)) {
    const processes = sshdProcesses(cluster.layout);
    stack.defer(() => void processes.map((each) => signalProcess(each, "SIGCONT")));
    for (const each of processes) signalProcess(each, "SIGSTOP");
  }
  const withinMs = isRemote(cluster.provider) ? endWithinMs.remote : endWithinMs.near;
  const began = performance.now();
  const byItself = await agent.stop(withinMs);
  console.log(`ended after ${Math.round(performance.now() - began)} ms`);
  assert.ok(byItself, `has not ended within ${withinMs} ms:\n${agent.log().slice(-3000)}`);
}

/** Makes pods each of which waits for something, and waits until it does. */
async function makePods(pods: Pods, port: number, registry: string): Promise<void> {
  const silent = { host: "127.0.0.1", port, path: "/" };
  const long = { timeoutSeconds: 600, periodSeconds: 1, initialDelaySeconds: 0 };
  const forever = { exec: { command: ["sleep", "600"] } };
  const talk = shell("while :; do echo word; sleep 1; done", { stdin: true });
  const end = { terminationGracePeriodSeconds: 600 };
  const polite = "trap exit TERM; sleep 600 & wait";
  const preStop = (handler: object) => ({ ...end, containers: [shell(polite, { lifecycle: { preStop: handler } })] });
  await Promise.all([
    pods.create("talking", { containers: [talk] }),
    pods.create("pulling", { containers: [{ image: `${registry}/hanging:1` }] }),
    pods.create("switched", {
      containers: [shell("sleep 600", { lifecycle: { postStart: { httpGet: { ...silent, path: "/switch" } } } })],
    }),
    pods.create("probed", {
      containers: [
        shell("sleep 600", {
          readinessProbe: { httpGet: silent, ...long },
          livenessProbe: { ...forever, ...long },
        }),
      ],
    }),
    pods.create("starting", { containers: [shell("sleep 600", { lifecycle: { postStart: { httpGet: silent } } })] }),
    pods.create("leaving-exec", preStop(forever)),
    pods.create("leaving-http", preStop({ httpGet: silent })),
    pods.create("leaving-switched", preStop({ httpGet: { ...silent, path: "/switch" } })),
  ]);
  const runs = (name: string) => pods.until(name, "to run", (pod) => statusOf(pod)?.state?.running !== undefined);
  const leaving = ["leaving-exec", "leaving-http", "leaving-switched"];
  await Promise.all(["talking", "switched", "probed", ...leaving].map(runs));
  await pods.event("pulling", "Pulling", `Pulling image "${registry}/hanging:1"`);
  await pods.event("starting", "Started", /./);
  const gone = pods.gone("leaving-switched");
  for (const name of leaving) await pods.remove(name);
  for (const name of leaving) await pods.event(name, "Killing", /./);
  // An answer of 101 is one: the hook is over.
  await gone;
}

/** Starts a program, which ends with the stack. @returns its first line. */
async function firstWord(
  stack: AsyncDisposableStack,
  spawn: Cluster["spawnInside"],
  argv: readonly string[],
): Promise<string> {
  const child = spawn(argv, { stdio: ["ignore", "pipe", "inherit"] });
  stack.defer(async () => {
    const ended = once(child, "exit");
    if (child.kill("SIGKILL")) await ended;
  });
  return firstLine(child);
}
