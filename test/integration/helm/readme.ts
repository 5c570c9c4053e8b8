import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parse, stringify } from "yaml";
import { helmArgv } from "../../harness/helm.ts";
import { type HelmLab, release } from "../../harness/helm-lab.ts";
import { networkArgv } from "../../harness/namespaces.ts";
import { run } from "../../harness/processes.ts";
import { type Block, blocksOf, root, yamlIsFor } from "../../unit/documents/pages.ts";

/** What the README calls the machine and the chart. */
const names = { machine: "edge-1.example", chart: "oci://ghcr.io/graftlet/charts/graftlet" };

/** A command of a block, and what the block says that it prints; nothing when it says nothing. */
interface Step {
  readonly command: string;
  readonly prints: string;
}

/** The README's blocks of commands that say that they are run word for word: what is done for a pod on the machine, how it is looked at, and
 *  what is done with an object in place of values. */
export function firstBlocks(): Readonly<Record<"done" | "looked" | "withObject", readonly Step[]>> {
  const blocks = blocksOf("README.md").filter(({ mark }) => mark.includes("word for word"));
  assert.equal(blocks.length, 3);
  const [done = [], looked = [], withObject = []] = blocks.map(stepsOf);
  return { done, looked, withObject };
}

function stepsOf({ text }: Block): readonly Step[] {
  const steps: { command: string; prints: string }[] = [];
  for (const line of text.split("\n").slice(0, -1)) {
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

/** Somebody who follows the README: in an empty folder with the key and known_hosts, and with helm and kubectl. */
export interface Reader {
  readonly lab: HelmLab;
  /** What the README's chart is here. */
  readonly chart: string;
  /** It lies in a registry of the loopback, without TLS, and nothing of this checkout is at hand. */
  readonly released?: boolean;
  /** What is added to a failure. */
  explain(): Promise<string>;
}

/** Does what the README's first blocks say. Filled in are the machine's address, the chart and, as values beside those of the
 *  README, how the machine is no real one. */
export async function followReadme(reader: Reader): Promise<void> {
  const { done, looked } = firstBlocks();
  const { nodes } = parse(readFileSync(reader.lab.values, "utf8")) as { readonly nodes: readonly object[] };
  // The README names the node by its key, and a list would be replaced.
  await followAll([...done, ...looked], reader, { values: { nodes: { [release.node]: nodes[0] } } });
}

/** Does what the README says for an object in place of values, with the pod of its first block. @param machine fields of
 *  the object's spec that say how it is no real one. @param values beside those of the README. */
export async function followReadmeWithObject(reader: Reader, machine: object, values: object): Promise<void> {
  const { done, looked, withObject } = firstBlocks();
  const [, pod] = done;
  assert.ok(pod);
  await followAll([...withObject, pod, ...looked], reader, { values, patch: { spec: machine } });
}

/** What the README does not say, because it is not so for a real machine. */
interface Particulars {
  readonly values: object;
  /** What is added to objects that are applied. */
  readonly patch?: object;
}

async function followAll(steps: readonly Step[], reader: Reader, particulars: Particulars): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "graftlet-readme-"));
  try {
    fill(folder, reader, particulars);
    for (const step of steps) await follow(step, folder, reader);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Gives a folder what the README takes for granted, and the object that it shows. */
function fill(folder: string, { lab, released = false }: Reader, { values, patch = {} }: Particulars): void {
  const { cluster, edge, program } = lab;
  const write = (name: string, text: string, mode = 0o644) => writeFileSync(join(folder, name), text, { mode });
  write("edge-1", edge.login["ssh-privatekey"], 0o600);
  write("known_hosts", edge.login.known_hosts);
  const object = blocksOf("README.md").find((block) => yamlIsFor(block) === "GraftedNode")?.text ?? "";
  write("edge-1.yaml", object.replaceAll(names.machine, String(edge.ssh["host"])));
  write("patch.json", JSON.stringify(patch));
  const kubectl = networkArgv(cluster.layout, [
    cluster.tools.path("kubectl"),
    `--kubeconfig=${cluster.adminKubeconfig}`,
  ]);
  const patched = `patch --local --type=merge --patch-file=${join(folder, "patch.json")} --output=yaml`;
  const applying = `[ "$1" != apply ] || { ${quoted(kubectl)} ${patched} "\${@:2}" | ${quoted(kubectl)} apply -f -; exit; }`;
  write("kubectl", script(kubectl, `set -o pipefail; ${applying}`), 0o755);
  write("values.yaml", stringify(values));
  const more = `--values ${join(folder, "values.yaml")}${released ? " --plain-http" : ""}`;
  const withMore = `[ "$1" != install ] || set -- "$@" ${more}`;
  write("helm", script(helmArgv(cluster, program, []), withMore), 0o755);
}

async function follow({ command, prints }: Step, folder: string, { lab, chart, released, explain }: Reader) {
  const filledIn = command.replaceAll(names.machine, String(lab.edge.ssh["host"])).replaceAll(names.chart, chart);
  const env = { PATH: `${folder}:${process.env["PATH"] ?? ""}` };
  const argv = released ? unseen(folder, filledIn) : ["bash", "-c", filledIn];
  const { code, stdout, stderr } = await run(argv, { cwd: folder, env, stdin: "exit\n", timeoutMs: 240_000 });
  assert.equal(code, 0, `${filledIn}: ${stderr}${stdout}\n${code === 0 ? "" : await explain()}`);
  if (prints !== "") assert.equal(stdout, prints, filledIn);
}

/** The command that runs others in a folder, and sees nothing of this checkout: an empty folder lies over it. */
function unseen(folder: string, commands: string): string[] {
  const hide = 'mount -t tmpfs none "$1"; cd "$2"; exec bash -c "$3"';
  return ["unshare", "--mount", "--propagation=private", "sh", "-ec", hide, "sh", root, folder, commands];
}

/** A program that runs another with its own arguments behind. @param before what the shell does first. */
function script(argv: readonly string[], before = ":"): string {
  return `#!/bin/bash\n${before}\nexec ${quoted(argv)} "$@"\n`;
}

function quoted(argv: readonly string[]): string {
  return argv.map((arg) => `'${arg}'`).join(" ");
}
