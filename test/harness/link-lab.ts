import assert from "node:assert/strict";
import type { Node, NodeCondition, Pod } from "../../src/objects.ts";
import { type Agent, type AgentOptions, startGraftlet } from "./agent.ts";
import type { Cluster } from "./cluster.ts";
import { startLab } from "./lab.ts";
import { containerId, type Pods } from "./pods.ts";
import { remoteProviderUnderTest } from "./runtime-daemon.ts";

/** A cluster whose node graftlet runs over SSH, with a pod to which nothing may happen, whatever befalls the link. */
export interface LinkLab extends AsyncDisposable {
  readonly cluster: Cluster;
  readonly pods: Pods;
  /** The graftlet that runs now. */
  agent(): Agent;
  /** Starts graftlet after its end. */
  start(options?: AgentOptions): Promise<void>;
  /** Ends graftlet, which it has to do by itself, and starts it again. */
  restart(options?: AgentOptions): Promise<void>;
  ready(): Promise<NodeCondition | undefined>;
  /** Waits for the node's Ready condition to say so; resolves with what it says beside, and how long it took. */
  nodeSays(status: string, reason: string, timeoutMs?: number): Promise<{ message: string; ms: number }>;
  /** Expects that the steady pod runs in the container that it began with, was never said to be anything else, and that nothing
   *  was told of it. */
  steadyStands(): Promise<void>;
}

/** Of a pod that the cluster does not evict, however long its node is not ready. */
export const tolerations = ["not-ready", "unreachable"].map((what) => ({
  key: `node.kubernetes.io/${what}`,
  operator: "Exists",
  effect: "NoExecute",
}));

/** Its readiness hangs on a single probe; its volumes are of both sorts: kept in memory, and brought up to date as it runs. */
export async function startLinkLab(name: string, options: AgentOptions = {}): Promise<LinkLab> {
  await using stack = new AsyncDisposableStack();
  const lab = stack.use(await startLab(name, { provider: remoteProviderUnderTest(), ...options }));
  const { cluster, pods } = lab;
  let { agent } = lab;
  stack.defer(() => agent[Symbol.asyncDispose]());
  await cluster.apply([
    { apiVersion: "v1", kind: "Secret", metadata: { name: "steady" }, stringData: { word: "before" } },
    { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "steady" }, data: { word: "before" } },
  ]);
  await pods.create("steady", {
    tolerations,
    volumes: [
      { name: "secret", secret: { secretName: "steady" } },
      { name: "config", configMap: { name: "steady" } },
    ],
    containers: [
      {
        readinessProbe: { exec: { command: ["true"] }, periodSeconds: 1, timeoutSeconds: 5, failureThreshold: 1 },
        volumeMounts: [
          { name: "secret", mountPath: "/secret" },
          { name: "config", mountPath: "/config" },
        ],
      },
    ],
  });
  const steady = await pods.ready("steady");
  const ready = async () => {
    const node = await cluster.get<Node>("node", cluster.nodeName);
    return node?.status?.conditions?.find(({ type }) => type === "Ready");
  };
  const start = async (wanted: AgentOptions = {}) => {
    const logged = agent.log().length;
    agent = await startGraftlet(cluster, wanted);
    if (wanted.untilReady === false) return;
    // That the node is Ready may be the word of the one before.
    const registered = () => agent.log().slice(logged).includes('"msg":"node is registered"');
    await cluster.waitFor("graftlet to have its node", registered, { explain: () => agent.log().slice(logged) });
  };
  const whole = stack.move();
  return {
    cluster,
    pods,
    agent: () => agent,
    ready,
    start,
    async restart(wanted) {
      assert.equal(await agent.stop(), true);
      await start(wanted);
    },
    async nodeSays(status, reason, timeoutMs = 60_000) {
      const began = performance.now();
      const found = await cluster.waitFor(
        `the node's Ready condition to be ${status} for ${reason}`,
        async () => {
          const now = await ready();
          return now?.status === status && now.reason === reason && now;
        },
        { timeoutMs, explain: async () => `${JSON.stringify(await ready())}\n${agent.log().slice(-3000)}` },
      );
      return { message: found.message ?? "", ms: Math.round(performance.now() - began) };
    },
    steadyStands: () => stands(pods, steady),
    [Symbol.asyncDispose]: () => whole.disposeAsync(),
  };
}

async function stands(pods: Pods, steady: Pod): Promise<void> {
  const told = await pods.events("steady");
  const warned = told.filter(({ type, source }) => type === "Warning" && source?.component === "kubelet");
  assert.deepEqual(
    warned.map(({ message }) => message),
    [],
  );
  assert.equal(containerId(await pods.ready("steady")), containerId(steady));
  for (const { status } of pods.history("steady").slice(pods.history("steady").indexOf(steady))) {
    const main = status?.containerStatuses?.[0];
    assert.deepEqual([status?.phase, main?.restartCount, main?.ready], ["Running", 0, true]);
  }
}
