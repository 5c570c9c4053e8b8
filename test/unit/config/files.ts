import { CodedError } from "../../../src/lib/errors.ts";
import { parseCommandLine } from "../../../src/config/command-line.ts";
import type { ParseResult } from "../../../src/config/parse-result.ts";
import type { ConfigIo } from "../../../src/config/documents.ts";
import type { NodeConfig } from "../../../src/config/node-config.ts";

/** Files in memory; /kubeconfig always exists. */
export function filesIo(files: Readonly<Record<string, string>> = {}, env: ConfigIo["env"] = {}): ConfigIo {
  const all: Readonly<Record<string, string>> = { "/kubeconfig": "kubeconfig", ...files };
  const missing = (path: string): Error => Object.assign(new Error(`ENOENT: ${path}`), { code: "ENOENT" });
  return {
    readFile: (path) => {
      const text = all[path];
      if (text === undefined) throw missing(path);
      return text;
    },
    listDir: (path) => {
      if (path in all) throw Object.assign(new Error(`ENOTDIR: ${path}`), { code: "ENOTDIR" });
      const directory = path.replace(/\/?$/, "/");
      const below = Object.keys(all).filter((name) => name.startsWith(directory));
      if (below.length === 0) throw missing(path);
      return below.map((name) => name.slice(directory.length));
    },
    isExecutable: (path) => path.includes("/bin/") && path in all,
    hostname: () => "Worker-1.Example",
    env,
  };
}

/** The run that these arguments result in, with --kubeconfig set. */
export function run(
  argv: readonly string[],
  files: Readonly<Record<string, string>> = {},
): Extract<ParseResult, { kind: "run" }> {
  const result = parseCommandLine(["--kubeconfig=/kubeconfig", ...argv], filesIo(files));
  if (result.kind !== "run") throw new Error(`${argv.join(" ")} gave ${result.kind}`);
  return result;
}

/** A run's warnings without their nodes. */
export function textsOf({ warnings }: Pick<ReturnType<typeof run>, "warnings">): string[] {
  return warnings.map(({ text }) => text);
}

/** The only node of a run. */
export function nodeOf(argv: readonly string[], files: Readonly<Record<string, string>> = {}): NodeConfig {
  const [node, second] = run(argv, files).nodes;
  if (!node || second) throw new Error("expected one node");
  return node;
}

/** A KubeletConfiguration file. */
export function kubeletFile(body: string): string {
  return `apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n${body}`;
}

/** The error with which these arguments are refused. */
export function refusalOf(argv: readonly string[], files: Readonly<Record<string, string>> = {}): string {
  return sentenceOf(() => run(argv, files));
}

export function sentenceOf(attempt: () => unknown): string {
  try {
    attempt();
  } catch (error) {
    if (error instanceof CodedError && error.code === "invalid_argument" && !error.message.includes("\n"))
      return error.message;
    throw error;
  }
  throw new Error("it was not refused");
}
