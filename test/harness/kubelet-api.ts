import type { KeyPair } from "./certificates.ts";
import type { Cluster } from "./cluster.ts";
import { networkArgv } from "./namespaces.ts";
import { must, run } from "./processes.ts";

/** Who asks: by client certificate, by bearer token, or nobody. */
export interface Caller {
  readonly certificate?: KeyPair;
  readonly token?: string;
}

export interface Answer {
  readonly status: number;
  readonly body: string;
}

/** What a request has besides its path. */
export interface Asking extends Caller {
  readonly method?: string;
  /** `Name: value` */
  readonly headers?: readonly string[];
}

const baseOf = ({ agentAddress }: Cluster): string => `https://${agentAddress}:10250`;

/** Asks the kubelet API itself, past the API server. The path goes out as it is. The answer of a connection that changes its
 *  protocol is its status alone. */
export async function askKubelet(cluster: Cluster, path: string, asking: Asking = {}): Promise<Answer> {
  const { method = "GET", headers = [] } = asking;
  const argv = curlArgv(cluster, asking, [
    "--max-time",
    headers.length > 0 ? "3" : "30",
    "--request",
    method,
    ...headers.flatMap((header) => ["--header", header]),
    "--write-out",
    "\n%{http_code}",
    `${baseOf(cluster)}${path}`,
  ]);
  const { stdout, stderr } = await run(argv);
  const at = stdout.lastIndexOf("\n");
  const status = Number(stdout.slice(at + 1));
  if (!(status > 0)) throw new Error(`the kubelet API did not answer ${method} ${path}: ${stderr}`);
  return { status, body: status === 101 ? "" : stdout.slice(0, at) };
}

/** The statuses of many paths, asked for over one connection. */
export async function kubeletStatuses(
  cluster: Cluster,
  paths: readonly string[],
  caller: Caller,
): Promise<Record<string, number>> {
  const targets = paths.flatMap((path) => ["--output", "/dev/null", `${baseOf(cluster)}${path}`]);
  const said = await must(curlArgv(cluster, caller, ["--max-time", "60", "--write-out", "%{http_code}\n", ...targets]));
  const statuses = said.trim().split("\n").map(Number);
  return Object.fromEntries(paths.map((path, index) => [path, statuses[index] ?? 0]));
}

function curlArgv(cluster: Cluster, { certificate, token }: Caller, args: readonly string[]): string[] {
  const credentials = certificate
    ? ["--cert", certificate.cert, "--key", certificate.key]
    : token === undefined
      ? []
      : ["--header", `Authorization: Bearer ${token}`];
  return networkArgv(cluster.layout, [
    cluster.tools.path("curl"),
    "--silent",
    "--show-error",
    "--http1.1",
    "--insecure",
    "--path-as-is",
    ...credentials,
    ...args,
  ]);
}
