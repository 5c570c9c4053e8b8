import { createInterface } from "node:readline";
import { join } from "node:path";
import { certificatesIn, issue, pairIn } from "./certificates.ts";
import type { Cluster } from "./cluster.ts";
import { apiServerUrl } from "./control-plane.ts";
import { writeKubeconfig } from "./kubeconfig.ts";
import { waitFor } from "./wait.ts";

/** What an API server does wrong: the answer, and which requests get it (all unless said). */
export interface Fault {
  readonly status?: number;
  /** Seconds. */
  readonly retryAfter?: number;
  /** The answer breaks off in the middle, as if it were whole. */
  readonly half?: true;
  readonly only?: "reads" | "pods";
}

/** A request that was to change something. */
export interface Write {
  /** Milliseconds since the epoch. */
  readonly at: number;
  readonly method: string;
  readonly path: string;
}

export type ProxyOrder =
  | { readonly do: "fault"; readonly fault?: Fault }
  | { readonly do: "swallow" | "close" | "open" | "writes" };

/** Stands between a node and its API server. Disposing of it ends it. */
export interface ApiProxy extends AsyncDisposable {
  /** For the node: leads here. */
  readonly kubeconfig: string;
  /** From now on requests are answered so; undefined: as the API server answers them. */
  answer(fault: Fault | undefined): Promise<void>;
  /** Every connection that there is leads nowhere any more, without a word; new ones are as ever. */
  swallow(): Promise<void>;
  /** Nobody listens, and nothing is connected, until `open`. */
  close(): Promise<void>;
  open(): Promise<void>;
  /** The writes since this was asked last. */
  writes(): Promise<readonly Write[]>;
}

/** Starts it inside the cluster, where its node's agent runs. */
export async function startApiProxy(cluster: Cluster): Promise<ApiProxy> {
  const { layout, nodeName } = cluster;
  const name = "api-proxy";
  const { ca } = certificatesIn(layout.pki);
  await issue(pairIn(layout.pki, name), ca, { commonName: name, names: ["IP:127.0.0.1"], usage: "serverAuth" });
  await cluster.kubeconfigFor(nodeName);
  const entry = join(import.meta.dirname, "api-proxy-entry.ts");
  const argv = [process.execPath, entry, apiServerUrl, layout.pki, name, `node-${nodeName}`];
  const child = cluster.spawnAtAgent(argv, { stdio: ["pipe", "pipe", "inherit"] });
  const { stdin, stdout } = child;
  if (!stdin || !stdout) throw new Error("the proxy has no pipes");
  const lines = createInterface({ input: stdout })[Symbol.asyncIterator]();
  const hear = async <T>(): Promise<T> => {
    const { done, value } = await lines.next();
    if (done) throw new Error("the proxy to the API server has ended");
    return JSON.parse(value) as T;
  };
  const { port } = await hear<{ port: number }>();
  let last: Promise<unknown> = Promise.resolve();
  const order = <T>(what: ProxyOrder): Promise<T> => {
    const answer = last.then(() => {
      stdin.write(`${JSON.stringify(what)}\n`);
      return hear<T>();
    });
    last = answer.catch(() => undefined);
    return answer;
  };
  return {
    kubeconfig: await writeKubeconfig(layout, `https://127.0.0.1:${port}`, "node-behind-proxy", {
      commonName: `system:node:${nodeName}`,
      organization: "system:nodes",
    }),
    answer: (fault) => order({ do: "fault", ...(fault && { fault }) }),
    swallow: () => order({ do: "swallow" }),
    close: () => order({ do: "close" }),
    open: () => order({ do: "open" }),
    writes: async () => (await order<{ writes: Write[] }>({ do: "writes" })).writes,
    async [Symbol.asyncDispose]() {
      child.kill("SIGKILL");
      await waitFor("the proxy's end", () => child.exitCode !== null || child.signalCode !== null, { everyMs: 20 });
    },
  };
}
