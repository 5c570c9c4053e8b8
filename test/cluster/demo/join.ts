import {
  accessSync,
  closeSync,
  constants,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { stringify } from "yaml";
import { tailOf } from "../../harness/daemons.ts";
import { identify, isAlive, must, run, signalProcess, start } from "../../harness/processes.ts";
import type { ProviderName } from "../../harness/runtime-daemon.ts";
import { Hopeless, waitFor } from "../../harness/wait.ts";
import { createScreen } from "./screen.ts";
import { namespace, nodeLabel, tour } from "./tour.ts";

const nodeName = "graftlet-demo";
const dataDir = "/var/lib/graftlet-demo";

/** What the demo needs to join a cluster that is there. */
export interface JoinOptions {
  readonly kubeconfig: string;
  readonly runtime: RuntimeToJoin;
  readonly keep: boolean;
}

/** This machine's container runtime and how graftlet is told of it. */
export interface RuntimeToJoin {
  readonly provider: ProviderName;
  /** `unix:///…` */
  readonly endpoint: string;
  /** What to do when nobody answers there. */
  readonly remedy: string;
  readonly kubeletConfiguration: Readonly<Record<string, string>>;
  readonly providerConfig: Readonly<Record<string, string>>;
}

/** The runtime that the environment names, by provider. */
export const runtimeToJoin: Readonly<Partial<Record<ProviderName, () => RuntimeToJoin>>> = {
  cri() {
    const endpoint = process.env.CONTAINERD ?? "unix:///run/containerd/containerd.sock";
    return {
      provider: "cri",
      endpoint,
      remedy: "install containerd, or name its socket by CONTAINERD=unix:///path",
      kubeletConfiguration: { containerRuntimeEndpoint: endpoint },
      // Shared: whatever else runs in that runtime is not ours and stays as it is.
      providerConfig: { endpoint, sharing: "shared" },
    };
  },
  docker() {
    const endpoint = process.env.DOCKER ?? "unix:///var/run/docker.sock";
    return {
      provider: "docker",
      endpoint,
      remedy: "install Docker, or name its socket by DOCKER=unix:///path",
      kubeletConfiguration: {},
      providerConfig: { socket: endpoint },
    };
  },
};

/**
 * The demo in an existing cluster: this machine becomes the node `graftlet-demo` of it, tainted so that
 * only the demo's pods come, and leaves it afterwards. Throws one sentence when something is missing.
 */
export async function demoInExistingCluster({ kubeconfig, runtime, keep }: JoinOptions): Promise<void> {
  await checkMachine(kubeconfig, runtime);
  const kubectl = (...args: string[]): string[] => ["kubectl", `--kubeconfig=${kubeconfig}`, ...args];
  const screen = createScreen({
    argv: (program, args) => (program === "kubectl" ? kubectl(...args) : [program, ...args]),
  });
  const pid = await startAgent(kubeconfig, runtime);
  try {
    await tour(screen, nodeName);
    if (keep) {
      screen.note(
        `Node ${nodeName} stays. Its process is ${pid.pid}, its log ${logFile}. To remove it: kubectl delete namespace ${namespace}; kubectl delete node ${nodeName}; kill ${pid.pid}`,
      );
      return;
    }
  } catch (error) {
    console.error(`the end of graftlet's log (${logFile}):\n${tailOf(logFile, 20)}`);
    await leave();
    throw error;
  }
  await leave();

  async function leave(): Promise<void> {
    screen.heading("leaving the cluster");
    await run(kubectl("delete", "namespace", namespace, "--ignore-not-found", "--timeout=90s"), { timeoutMs: 100_000 });
    signalProcess(pid, "SIGTERM");
    await waitFor("graftlet to end", () => !isAlive(pid), { timeoutMs: 20_000 });
    await run(kubectl("delete", "node", nodeName, "--ignore-not-found"));
    const mounts = readFileSync("/proc/self/mountinfo", "utf8")
      .split("\n")
      .filter((line) => line.includes(` ${dataDir}/`));
    if (mounts.length > 0)
      throw new Error(
        `${dataDir} stays, because pods' volumes are still mounted there: remove it once ${namespace} is gone from the cluster`,
      );
    rmSync(dataDir, { recursive: true, force: true });
  }
}

const logFile = join(dataDir, "graftlet.log");

async function checkMachine(kubeconfig: string, { endpoint, remedy }: RuntimeToJoin): Promise<void> {
  if (process.getuid?.() !== 0) throw new Error("running pods on this machine needs root: run make demo as root");
  if (!existsSync(kubeconfig))
    throw new Error(`KUBECONFIG=${kubeconfig} is missing: name the kubeconfig of the cluster to join`);
  if ((await run(["sh", "-c", "command -v kubectl"])).code !== 0)
    throw new Error("kubectl is missing: install it, it shows the demo in your cluster");
  const socket = endpoint.replace(/^unix:\/\//, "");
  try {
    accessSync(socket, constants.W_OK);
  } catch (error) {
    throw new Error(`no container runtime answers at ${endpoint}: ${remedy}`, { cause: error });
  }
  if (await answers(10248))
    throw new Error("a kubelet answers on this machine's port 10248: stop it first or use another machine");
  await must(["kubectl", `--kubeconfig=${kubeconfig}`, "version", "--request-timeout=10s"]);
}

async function startAgent(kubeconfig: string, runtime: RuntimeToJoin): ReturnType<typeof awaitReady> {
  mkdirSync(dataDir, { recursive: true });
  const config = join(dataDir, "config.yaml");
  // The client CA comes from the cluster itself (kube-system/extension-apiserver-authentication).
  writeFileSync(
    config,
    stringify({
      apiVersion: "kubelet.config.k8s.io/v1beta1",
      kind: "KubeletConfiguration",
      ...runtime.kubeletConfiguration,
      cgroupDriver: "cgroupfs",
      failCgroupV1: false,
      failSwapOn: false,
    }),
  );
  const provider = join(dataDir, "provider.yaml");
  writeFileSync(provider, stringify(runtime.providerConfig));
  const log = openSync(logFile, "w");
  const child = start(
    [
      process.execPath,
      join(import.meta.dirname, "..", "..", "..", "src", "main.ts"),
      `--config=${config}`,
      `--kubeconfig=${kubeconfig}`,
      `--hostname-override=${nodeName}`,
      `--root-dir=${join(dataDir, "kubelet")}`,
      `--provider=${runtime.provider}`,
      `--provider-config=${provider}`,
      `--node-labels=${nodeLabel}`,
      `--register-with-taints=${nodeLabel}:NoSchedule`,
    ],
    { stdio: ["ignore", log, log], detached: true },
  );
  closeSync(log);
  child.unref();
  return await awaitReady(child.pid, kubeconfig);
}

async function awaitReady(pid: number | undefined, kubeconfig: string): Promise<{ pid: number; startTicks: string }> {
  const id = pid === undefined ? undefined : identify(pid);
  if (!id) throw new Error(`graftlet ended at once: ${readFileSync(logFile, "utf8")}`);
  await waitFor(
    `node ${nodeName} to be Ready`,
    async () => {
      if (!isAlive(id)) throw new Hopeless(`graftlet ended:\n${tailOf(logFile, 20)}`);
      const { stdout } = await run([
        "kubectl",
        `--kubeconfig=${kubeconfig}`,
        "get",
        "node",
        nodeName,
        "--ignore-not-found",
        '--output=jsonpath={.status.conditions[?(@.type=="Ready")].status}',
      ]);
      return stdout === "True";
    },
    { timeoutMs: 120_000, everyMs: 500, explain: () => tailOf(logFile, 20) },
  );
  return id;
}

function answers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1");
    socket.once("connect", () => {
      socket.destroy();
      resolve(true);
    });
    socket.once("error", () => resolve(false));
  });
}
