import { readFileSync } from "node:fs";
import { cpus, totalmem } from "node:os";
import { join } from "node:path";
import { must } from "../harness/processes.ts";
import { runtimeDaemons } from "../harness/runtime-daemon.ts";
import type { Tools } from "../harness/tools.ts";
import { type AgentName, type Provider, targetWith } from "./options.ts";

/** What takes part in a run, and its versions: the agent, Kubernetes, the runtime, the machine. */
export async function versionsLine(tools: Tools, provider: Provider, agent: AgentName): Promise<string> {
  const project = join(import.meta.dirname, "..", "..");
  const { version } = JSON.parse(readFileSync(join(project, "package.json"), "utf8")) as { version: string };
  const versionOf = async (program: string): Promise<string> => (await must([tools.path(program), "--version"])).trim();
  const kubernetes = (await versionOf("kubelet")).replace("Kubernetes ", "");
  const daemon = runtimeDaemons[targetWith(provider)].role;
  const runtime = /\d+\.\d+\.\d+/.exec(await versionOf(daemon))?.[0] ?? "of an unknown version";
  const memory = `${Math.round(totalmem() / 2 ** 30)} GiB`;
  const node = agent === "graftlet" ? `graftlet ${version} on Node ${process.versions.node}` : `kubelet ${kubernetes}`;
  return `${cpus().length} processors and ${memory}: ${node}, Kubernetes ${kubernetes}, ${daemon} ${runtime}`;
}
