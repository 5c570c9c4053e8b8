import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { chart, helmArgv } from "../../harness/helm.ts";
import type { HelmLab } from "../../harness/helm-lab.ts";
import { networkArgv } from "../../harness/namespaces.ts";
import { run } from "../../harness/processes.ts";

const readme = join(import.meta.dirname, "..", "..", "..", "README.md");

/** The machine's name in the README. */
const machine = "edge-1.example";

/** A command of a block, and what the block says that it prints; nothing when it says nothing. */
interface Step {
  readonly command: string;
  readonly prints: string;
}

/** The first block of the README's commands, word for word. */
export function firstBlock(): readonly Step[] {
  const [, block = ""] = /^```console\n(.*?)^```$/ms.exec(readFileSync(readme, "utf8")) ?? [];
  const steps: { command: string; prints: string }[] = [];
  for (const line of block.split("\n").slice(0, -1)) {
    const step = steps.at(-1);
    if (line.startsWith("$ ")) steps.push({ command: line.slice(2), prints: "" });
    else if (step && isOpen(step.command)) step.command += `\n${line}`;
    else if (step) step.prints += `${line}\n`;
  }
  return steps;
}

/** Whether a shell would read on. */
function isOpen(command: string): boolean {
  return command.endsWith("\\") || command.split("'").length % 2 === 0;
}

/** Does what the README's first block says, as somebody does who has the key, known_hosts and the chart at hand. Filled in are the
 *  machine's address and, as values beside those of the block, how it is no real machine. */
export async function followReadme(lab: HelmLab, explain: () => Promise<string>): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "graftlet-readme-"));
  const inFolder = (name: string, text: string, mode?: number) => writeFileSync(join(folder, name), text, { mode });
  try {
    const { cluster, edge } = lab;
    inFolder("edge-1", edge.login["ssh-privatekey"], 0o600);
    inFolder("known_hosts", edge.login.known_hosts);
    symlinkSync(dirname(chart), join(folder, "charts"));
    const kubectl = [cluster.tools.path("kubectl"), `--kubeconfig=${cluster.adminKubeconfig}`];
    inFolder("kubectl", program(networkArgv(cluster.layout, kubectl)), 0o755);
    const helm = program(
      helmArgv(cluster, lab.program, []),
      `if [ "$1" = install ]; then set -- "$@" --values ${lab.values}; fi`,
    );
    inFolder("helm", helm, 0o755);
    for (const { command, prints } of firstBlock()) {
      const script = command.replaceAll(machine, String(edge.ssh["host"]));
      const env = { PATH: `${folder}:${process.env["PATH"] ?? ""}` };
      const shell = { cwd: folder, env, stdin: "exit\n", timeoutMs: 180_000 };
      const { code, stdout, stderr } = await run(["bash", "-c", script], shell);
      assert.equal(code, 0, `${script}: ${stderr}${stdout}\n${await explained(code, explain)}`);
      if (prints !== "") assert.equal(stdout, prints, script);
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function explained(code: number, explain: () => Promise<string>): Promise<string> {
  return code === 0 ? "" : await explain();
}

/** A program that runs another with its own arguments behind. @param before what the shell does first. */
function program(argv: readonly string[], before = ":"): string {
  return `#!/bin/bash\n${before}\nexec ${argv.map((arg) => `'${arg}'`).join(" ")} "$@"\n`;
}
