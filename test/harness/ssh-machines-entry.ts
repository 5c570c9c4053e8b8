// Machines of one process that are reached over SSH: each has an SSH server and files of its own, and a container runtime in memory. Run by
// startSshMachines; process.argv: a folder for the machines' files, the address of the SSH servers, a file with the public key of root's
// login. Each line of the input is answered with a line of JSON: "start NAME PORT" with the fingerprint of the new machine's host key,
// "traffic" with what the SSH servers have seen, by the machines' names. The end of the input ends it.
import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fingerprintOf } from "../../providers/ssh/connection/fingerprint.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { fakeRuntime } from "../fakes/runtime.ts";
import { serveCri } from "./cri-server.ts";
import { firstLine } from "./processes.ts";
import { sshKey } from "./ssh-keys.ts";
import { type SshTraffic, startSshMachine } from "./ssh-machine.ts";

const [folder = "", address = "", loginKeyFile = ""] = process.argv.slice(2);
const loginKey = readFileSync(loginKeyFile, "utf8");
const clock = systemClock();
const holders = new Set<ChildProcess>();
const traffic = new Map<string, () => SshTraffic>();

/** Directories of a machine's own, by their names in its folder. */
const ownDirectories = { lib: "/var/lib", log: "/var/log", run: "/run" };
const socket = "containerd/containerd.sock";

async function startMachine(name: string, port: number): Promise<string> {
  const files = join(folder, name);
  for (const directory of Object.keys(ownDirectories)) mkdirSync(join(files, directory), { recursive: true });
  // The directory of the runtime's socket, and that of its images.
  for (const directory of ["run/containerd", "lib/fake"]) mkdirSync(join(files, directory));
  writeFileSync(join(files, "machine-id"), `${randomBytes(16).toString("hex")}\n`);
  const runtime = fakeRuntime({ clock });
  runtime.offerImage("docker.io/library/busybox");
  await serveCri(runtime, join(files, "run", socket));
  const holder = await startHolder(name, files);
  const key = sshKey("P-256");
  const hostKey = key.privateKey.export({ type: "sec1", format: "pem" });
  traffic.set(name, await startSshMachine({ hostKey, loginKey, holder, address, port }));
  return fingerprintOf(key.wire);
}

/** Starts the process that keeps a machine's mounts and host name. @returns its number. */
async function startHolder(name: string, files: string): Promise<number> {
  const mounts = [...Object.entries(ownDirectories), ["machine-id", "/etc/machine-id"]];
  const lines = [
    `hostname ${name}`,
    ...mounts.map(([own, path]) => `mount -n --bind ${files}/${own} ${path}`),
    "echo ready",
    "exec sleep infinity",
  ];
  const namespaces = ["--mount", "--uts", "--propagation=private"];
  const holder = spawn("unshare", [...namespaces, "sh", "-ec", lines.join("\n")], {
    cwd: "/",
    stdio: ["ignore", "pipe", "inherit"],
  });
  holders.add(holder);
  await firstLine(holder);
  if (holder.pid === undefined) throw new Error(`the machine ${name} has no process`);
  return holder.pid;
}

async function answer(line: string): Promise<unknown> {
  const [word, name = "", port] = line.split(" ");
  if (word === "start") return startMachine(name, Number(port));
  if (word === "traffic") return Object.fromEntries([...traffic].map(([machine, seen]) => [machine, seen()]));
  throw new Error(`not a command: ${line}`);
}

for await (const line of createInterface({ input: process.stdin })) console.log(JSON.stringify(await answer(line)));
for (const holder of holders) holder.kill("SIGKILL");
process.exit(0);
