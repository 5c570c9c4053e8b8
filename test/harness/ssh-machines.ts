import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { poolPath } from "../../src/fleet/pool.ts";
import { agentAddresses } from "./agent-machine.ts";
import type { Api } from "./api.ts";
import { createCgroup } from "./cgroups.ts";
import type { Cluster } from "./cluster.ts";
import { fleetRelease } from "./fake-fleet.ts";
import type { SshTraffic } from "./ssh-machine.ts";
import { loginKeyFile } from "./sshd.ts";

const { namespace } = fleetRelease;
const apiVersion = "graftlet.dev/v1alpha1";
const firstPort = 20_000;
/** Limit of the programs of a user that watch files. It is the kernel's, which all of these machines share; by default it is 128. */
const watchers = { file: "/proc/sys/fs/inotify/max_user_instances", needed: 4_096 };

/** Machines that the agent's machine reaches over SSH, served by a few processes: each has a host key, files, locks and a machine ID of its
 *  own, the cluster's network, and a container runtime in memory. */
export interface SshMachines extends AsyncDisposable {
  /** The processes. */
  readonly pids: readonly number[];
  /** Starts another one. @param ssh fields of the object's `spec.ssh` that differ. @returns the GraftedNode for it, a member of the pool that
   *  `createSshPool` creates. */
  start(name: string, ssh?: object): Promise<{ readonly metadata: { readonly name: string } }>;
  /** What their SSH servers have seen so far, by name. */
  traffic(): Promise<Readonly<Record<string, SshTraffic>>>;
  /** A machine's file as this process sees it. @param path below /var/lib, /var/log or /run of the machine. */
  fileOf(name: string, path: string): string;
}

/** Starts the processes, still without machines, beside a cluster with a provider over SSH. They end when they are disposed.
 *  @param processes number of processes; one of them can serve about fifty machines in time. */
export async function startSshMachines({ layout, spawnInside }: Cluster, processes: number): Promise<SshMachines> {
  const folder = join(layout.dir, "machines");
  mkdirSync(folder);
  const limit = readFileSync(watchers.file, "utf8");
  if (Number(limit) < watchers.needed) writeFileSync(watchers.file, String(watchers.needed));
  const entry = join(import.meta.dirname, "ssh-machines-entry.ts");
  const argv = [process.execPath, entry, folder, agentAddresses.target, `${loginKeyFile(layout)}.pub`];
  const servers = Array.from({ length: processes }, () => startServer(spawnInside(argv)));
  let started = 0;
  return {
    pids: servers.map(({ pid }) => pid),
    async start(name, ssh = {}) {
      const port = firstPort + started;
      const server = servers[started % servers.length];
      started += 1;
      if (!server) throw new Error("there is no process for machines");
      const cgroupRoot = join(layout.cgroup, name);
      createCgroup({ ...layout, cgroup: cgroupRoot });
      const hostKeyFingerprints = [await server.ask<string>(`start ${name} ${port}`)];
      return {
        apiVersion,
        kind: "GraftedNode",
        metadata: { name, namespace },
        spec: {
          poolRef: { name: "edge" },
          ssh: { host: agentAddresses.target, port, hostKeyFingerprints, ...ssh },
          kubeletConfiguration: { cgroupRoot },
        },
      };
    },
    async traffic() {
      const seen = await Promise.all(servers.map(({ ask }) => ask<Readonly<Record<string, SshTraffic>>>("traffic")));
      return Object.assign({}, ...seen) as Readonly<Record<string, SshTraffic>>;
    },
    fileOf: (name, path) => join(folder, name, path.replace(/^\/var\//, "")),
    async [Symbol.asyncDispose]() {
      await Promise.all(servers.map((server) => server.end()));
      writeFileSync(watchers.file, limit);
    },
  };
}

/** One process that serves machines. It answers questions in their order. */
function startServer(child: ChildProcess) {
  child.stderr?.pipe(process.stderr);
  const { stdin, stdout, pid } = child;
  const ended = once(child, "exit");
  if (!stdin || !stdout || pid === undefined) throw new Error("a process of machines cannot be asked");
  const lines = createInterface({ input: stdout })[Symbol.asyncIterator]();
  let last: Promise<unknown> = Promise.resolve();
  return {
    pid,
    ask<Answer>(line: string): Promise<Answer> {
      stdin.write(`${line}\n`);
      const answer = last.then(async () => {
        const { value, done } = await lines.next();
        if (done) throw new Error(`a process of machines ended when it was asked "${line}"`);
        return JSON.parse(value) as Answer;
      });
      last = answer;
      return answer;
    },
    async end() {
      stdin.end();
      await ended;
    },
  };
}

/** Creates a pool with the login of such machines, and what its members have in common. */
export async function createSshPool({ layout }: Cluster, api: Pick<Api, "create">): Promise<void> {
  await createLogin(api, "login", loginKeyFile(layout));
  // Without eviction thresholds, graftlet does not measure each machine every ten seconds: hundreds of them share two processors here.
  const evictionHard = { "nodefs.available": "0%" };
  const template = {
    ssh: { secretRef: { name: "login" } },
    network: "isolated",
    kubeletConfiguration: { failSwapOn: false, failCgroupV1: false, evictionHard },
  };
  const metadata = { name: "edge", namespace };
  await api.create(poolPath(namespace), { apiVersion, kind: "GraftedNodePool", metadata, spec: { template } });
}

/** Creates a Secret with a private key. @param keyFile of the machine that the tests run on. */
export async function createLogin(api: Pick<Api, "create">, name: string, keyFile: string): Promise<void> {
  await api.create(`/api/v1/namespaces/${namespace}/secrets`, {
    apiVersion: "v1",
    kind: "Secret",
    metadata: { name, namespace },
    type: "kubernetes.io/ssh-auth",
    stringData: { "ssh-privatekey": readFileSync(keyFile, "utf8") },
  });
}
