import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { graftletCommand } from "../../harness/agent.ts";
import { createFurtherMachine } from "../../harness/agent-machine.ts";
import { type HelmLab, release } from "../../harness/helm-lab.ts";
import { networkArgv } from "../../harness/namespaces.ts";
import {
  type Finished,
  type RunOptions,
  must,
  run,
  type ProcessId,
  signalProcess,
  startDaemon,
  textOf,
} from "../../harness/processes.ts";
import { inNamespace } from "./release.ts";

/** The machine of a site outside the cluster, on which a replica of the release runs. */
export interface Site extends AsyncDisposable {
  /** At which the API server reaches it. */
  readonly address: string;
  /** Name of the replica, and of its ServiceAccount. */
  readonly replica: string;
  readonly kubeconfig: string;
  /** Makes its kubeconfig, as an administrator of the cluster does. */
  login(): Promise<void>;
  /** Starts graftlet there. */
  start(): Promise<ProcessId>;
  /** Runs graftlet there until it ends. */
  runToEnd(...flags: readonly string[]): Promise<Finished>;
  /** Runs kubectl with its credentials. */
  kubectl(args: readonly string[], options?: RunOptions): Promise<Finished>;
  log(): string;
}

/** The machine is beside that of the lab's edge, which it reaches through the cluster's. */
export async function startSite({ cluster, edge }: HelmLab, name: string): Promise<Site> {
  await using stack = new AsyncDisposableStack();
  const { layout, tools } = cluster;
  const { address, netns } = stack.use(await createFurtherMachine(layout, 1));
  const back = `ip route add ${address} via 10.10.9.2`;
  await must(networkArgv(edge.layout, back.split(" ")));
  const directory = join(layout.dir, name);
  const kubeconfig = join(layout.dir, `${name}.kubeconfig`);
  const logFile = join(layout.logs, `${name}.log`);
  const replica = `${release.name}-graftlet.${name}`;
  const argv = (...flags: readonly string[]) => {
    const own = ["--fleet=graftlet/edge", `--kubeconfig=${kubeconfig}`, ...flags];
    return ["nsenter", `--net=${netns}`, ...graftletCommand({ built: false }), ...own];
  };
  const processes: ProcessId[] = [];
  stack.defer(() => processes.forEach((id) => signalProcess(id, "SIGKILL")));
  const config = (...args: readonly string[]) =>
    must(networkArgv(layout, [tools.path("kubectl"), `--kubeconfig=${kubeconfig}`, "config", ...args]));
  const whole = stack.move();
  return {
    address,
    replica,
    kubeconfig,
    async login() {
      const token = await cluster.mustKubectl(["create", "token", replica, inNamespace, "--duration=8760h"]);
      const view = ["config", "view", "--raw", "--minify", "--flatten"];
      writeFileSync(kubeconfig, await cluster.mustKubectl(view), { mode: 0o600 });
      await config("unset", "users");
      await config("set-credentials", "site", `--token=${token.trim()}`);
      await config("set-context", "--current", "--user=site");
    },
    async start() {
      const id = await startDaemon(argv(`--cert-dir=${directory}`, "-v=3"), logFile);
      processes.push(id);
      await sleep(100);
      return id;
    },
    runToEnd: (...flags) => run(argv(`--cert-dir=${directory}-other`, ...flags), { timeoutMs: 60_000 }),
    kubectl: (args, options) =>
      run(networkArgv(layout, [tools.path("kubectl"), `--kubeconfig=${kubeconfig}`, ...args]), options),
    log: () => textOf(logFile),
    [Symbol.asyncDispose]: () => whole.disposeAsync(),
  };
}
