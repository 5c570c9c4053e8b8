import { cpus, totalmem } from "node:os";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Tools } from "../harness/tools.ts";
import { must } from "../harness/processes.ts";

/** A line about what a run was made on: processor, memory, the versions of what took part. */
export async function machineLine(tools: Tools): Promise<string> {
  const project = join(import.meta.dirname, "..", "..");
  const { version } = JSON.parse(readFileSync(join(project, "package.json"), "utf8")) as { version: string };
  const processors = cpus();
  const kubelet = (await must([tools.path("kubelet"), "--version"])).trim();
  const containerd = (await must([tools.path("containerd"), "--version"])).trim().split(" ")[2] ?? "";
  const memory = `${Math.round(totalmem() / 2 ** 30)} GiB`;
  const model = processors[0]?.model.trim() ?? "an unknown processor";
  return `${processors.length} × ${model}, ${memory}; graftlet ${version} on Node ${process.versions.node}, ${kubelet}, containerd ${containerd}`;
}
