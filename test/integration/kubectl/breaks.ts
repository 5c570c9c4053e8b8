import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import type { Pod } from "../../../src/objects.ts";
import { type Agent, startGraftlet } from "../../harness/agent.ts";
import { type Conversation, converse } from "../../harness/conversation.ts";
import type { Lab } from "../../harness/lab.ts";
import { containerId, firstProcess, shell, statusOf } from "../../harness/pods.ts";
import { listProcesses, signalProcess } from "../../harness/processes.ts";
import { hasDocker, providerUnderTest } from "../../harness/runtime-daemon.ts";
import { forward } from "./port-forward.ts";
import { type Transport, transports } from "./transports.ts";

const pod = "broken-off";
/** Docker has no streams of its own for the kubelet API: port-forward does not hang on the daemon, and an exec goes on without the
 *  shim until the daemon ends it. */
const onDocker = hasDocker(providerUnderTest());

/** Streams that break in the middle: kubectl must not take that for the command's success. The last of kubectl's tests: the agent
 *  that all others have used ends here. */
export function breakTests(lab: () => Lab): void {
  describe("broken streams", { concurrency: false }, () => {
    let other: Agent | undefined;

    before(async () => {
      await lab().pods.create(pod, { containers: [shell("while :; do echo tick; sleep 0.2; done")] });
      await lab().pods.ready(pod);
    });

    test("WebSockets reach the node without translation by the API server", async () => {
      const { cluster } = lab();
      await using _ = await openAll(
        lab(),
        transports.filter(({ name }) => name === "WebSocket"),
      );
      const metrics = await cluster.mustKubectl(["get", "--raw", "/metrics"]);
      const counted = metrics.match(/^\S*websocket_streaming_requests_total\{.*\} \d+$/gm) ?? [];
      for (const subresource of ["attach", "exec", "portforward"])
        assert.ok(
          counted.some((line) => line.includes(`"${subresource}"`) && line.includes('"proxied_to_kubelet"')),
          counted.join("\n"),
        );
      assert.deepEqual(
        counted.filter((line) => line.includes('"translated_at_apiserver"')),
        [],
      );
    });

    if (!onDocker) test("exec does not succeed when the container's shim is killed", () => shimKilled(lab()));

    test("exec, attach and port-forward do not succeed when the runtime is killed", async () => {
      const { cluster } = lab();
      await using streams = await openAll(lab(), transports);
      await cluster.killRuntime();
      try {
        await noneSucceeds(onDocker ? streams.commands : [...streams.commands, ...streams.forwards]);
      } finally {
        await cluster.startRuntime();
      }
      if (!onDocker) allSayLost(streams.commands);
    });

    test("exec, attach and port-forward do not succeed when graftlet ends", async () => {
      const { agent, cluster } = lab();
      await untilServed(lab());
      await using streams = await openAll(lab(), transports);
      assert.ok(await agent.stop());
      await noneSucceeds([...streams.commands, ...streams.forwards]);
      if (!onDocker) allSayLost(streams.commands);
      other = await startGraftlet(cluster);
    });

    test("exec and attach over WebSocket, and port-forward, do not succeed when graftlet is killed", async () => {
      assert.ok(other);
      await untilServed(lab());
      await using streams = await openAll(
        lab(),
        transports.filter(({ name }) => name === "WebSocket"),
      );
      await other.kill("SIGKILL");
      await noneSucceeds([...streams.commands, ...streams.forwards]);
    });
  });
}

/** To whoever is attached it is the container's end, which the runtime tells. */
async function shimKilled(lab: Lab): Promise<void> {
  const { cluster, pods } = lab;
  const before = await pods.ready(pod);
  await using streams = await openAll(lab, transports);
  const all = listProcesses();
  const shim = all.find(({ pid }) => pid === all.find((each) => each.pid === firstProcess(cluster, before))?.parent);
  assert.ok(shim && shim.pid !== 1);
  signalProcess(shim, "SIGKILL");
  await noneSucceeds(streams.commands.filter(({ what }) => what.startsWith("exec")));
  const runsAgain = (now: Pod) => containerId(now) !== containerId(before) && statusOf(now)?.ready === true;
  await pods.until(pod, "to run again", runsAgain);
}

interface Open {
  readonly what: string;
  readonly talk: Conversation;
}

interface Streams extends AsyncDisposable {
  readonly commands: readonly Open[];
  readonly forwards: readonly Open[];
}

/** An exec, an attach and a port-forward over each transport, all under way. */
async function openAll(lab: Lab, over: readonly Transport[]): Promise<Streams> {
  await using stack = new AsyncDisposableStack();
  const [commands, forwards]: [Open[], Open[]] = [[], []];
  for (const { name, env } of over) {
    const begin = (...args: string[]) => stack.use(converse(lab.cluster.startKubectl(args, { env })));
    commands.push({ what: `exec over ${name}`, talk: begin("exec", pod, "--", "sh", "-c", "echo tick; sleep 1000") });
    commands.push({ what: `attach over ${name}`, talk: begin("attach", pod) });
    forwards.push({ what: `port-forward over ${name}`, talk: stack.use(await forward(lab, pod, env)) });
  }
  for (const { talk } of commands) await talk.says("tick");
  const whole = stack.move();
  return { commands, forwards, [Symbol.asyncDispose]: () => whole.disposeAsync() };
}

/** Waits until the agent and the runtime answer. */
async function untilServed({ cluster }: Lab): Promise<void> {
  const served = async () => (await cluster.kubectl(["exec", pod, "--", "true"])).code === 0;
  await cluster.waitFor("a command in the pod", served);
}

function allSayLost(streams: readonly Open[]): void {
  for (const { what, talk } of streams) assert.match(talk.stderr(), /the connection to the container was lost/, what);
}

async function noneSucceeds(streams: readonly Open[]): Promise<void> {
  for (const { what, talk } of streams) assert.notEqual(await talk.ended(), 0, `${what}: ${talk.stderr()}`);
}
