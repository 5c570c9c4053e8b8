import { request } from "node:http";
import { connect } from "node:net";
import { join } from "node:path";
import type { CgroupDriver } from "../../src/pod/cgroup-path.ts";
import { cgroupDriverOf, hasCrio } from "../machines/systems.ts";
import { isGuest, providers } from "../matrix.ts";
import { containerdArgv, writeContainerdConfig } from "./containerd.ts";
import { runcRoot } from "./containerd-config.ts";
import { writeCrioConfig } from "./crio.ts";
import { dockerdArgv, dockerExecRoot, writeDockerConfig } from "./docker.ts";
import type { RegistryName } from "./registry.ts";
import type { Layout } from "./state.ts";
import type { Tools } from "./tools.ts";

/** A provider that the harness can give a machine for. With ssh the agent is on another machine, and the runtime that it finds
 *  over SSH is containerd or the Docker Engine. With ssh-systemd and ssh-docker-systemd that machine has a systemd, which runs sshd and
 *  the runtime and makes the cgroups of pods; with ssh-guest and ssh-docker-guest it has a kernel of its own as well. */
export type ProviderName = (typeof providerNames)[number];

/** With cri-2.4 it is cri, on another containerd; with docker-28 and docker-29 docker, on another Docker Engine. */
const providerNames = providers.filter(
  (provider) => provider !== "cri-2.4" && provider !== "docker-28" && provider !== "docker-29",
);

/** The container runtime of a cluster's machine. */
export interface RuntimeDaemon {
  /** Its role among the cluster's daemons, which names its log. */
  readonly role: "containerd" | "dockerd";
  socket(layout: Layout): string;
  writeConfig(layout: Layout): void;
  argv(tools: Tools, layout: Layout): string[];
  answers(layout: Layout): Promise<boolean>;
  /** The folder of all images and layers. */
  store(layout: Layout): string;
  /** The folder, inside, with a file for each pod's network namespace. */
  podNetworks(layout: Layout): string;
  /** The folder with a folder for each container that runc runs. */
  runcStates(layout: Layout): string;
  /** The folder with a folder for each container that a shim keeps. */
  tasks(layout: Layout): string;
  /** The registries that it needs. */
  readonly registries: readonly RegistryName[];
}

const containerd: RuntimeDaemon = {
  role: "containerd",
  socket: (layout) => layout.containerdSocket,
  writeConfig: (layout) => writeContainerdConfig(layout, "cgroupfs"),
  argv: containerdArgv,
  answers: (layout) => accepts(layout.containerdSocket),
  store: (layout) => join(layout.containerd, "root"),
  podNetworks: (layout) => join(layout.containerd, "state", "io.containerd.grpc.v1.cri", "netns"),
  runcStates: (layout) => join(runcRoot(layout), "k8s.io"),
  tasks: (layout) => join(layout.containerd, "state", "io.containerd.runtime.v2.task", "k8s.io"),
  registries: ["open", "private"],
};

const dockerEngine: RuntimeDaemon = {
  role: "dockerd",
  socket: (layout) => layout.dockerSocket,
  writeConfig: (layout) => writeDockerConfig(layout),
  argv: dockerdArgv,
  answers: (layout) => pongs(layout.dockerSocket),
  store: (layout) => join(layout.docker, "data"),
  podNetworks: (layout) => join(dockerExecRoot(layout), "netns"),
  runcStates: (layout) => join(dockerExecRoot(layout), "runtime-runc", "moby"),
  tasks: (layout) => join(dockerExecRoot(layout), "containerd", "daemon", "io.containerd.runtime.v2.task", "moby"),
  registries: ["open", "plain", "private"],
};

/** containerd, or CRI-O in its place, on a machine with an init of its own. */
const containerdOfMachine: RuntimeDaemon = {
  ...containerd,
  writeConfig: (layout) =>
    hasCrio(layout) ? writeCrioConfig(layout) : writeContainerdConfig(layout, cgroupDriverOf(layout)),
};

const dockerOfMachine: RuntimeDaemon = {
  ...dockerEngine,
  writeConfig: (layout) => writeDockerConfig(layout, { driver: cgroupDriverOf(layout) }),
};

/** The runtime that each provider works with. */
export const runtimeDaemons: Readonly<Record<ProviderName, RuntimeDaemon>> = {
  cri: containerd,
  docker: dockerEngine,
  ssh: containerd,
  "ssh-docker": dockerEngine,
  "ssh-systemd": containerdOfMachine,
  "ssh-docker-systemd": dockerOfMachine,
  "ssh-guest": containerdOfMachine,
  "ssh-docker-guest": dockerOfMachine,
};

/** Whether the agent reaches its target over SSH, from a machine of its own. */
export function isRemote(provider: ProviderName): boolean {
  return provider.startsWith("ssh");
}

/** Whether the target is a machine with a systemd of its own. */
export function hasSystemd(provider: ProviderName): boolean {
  return isMachine(provider) || isGuest(provider);
}

/** Whether the target's runtime is a Docker Engine. */
export function hasDocker(provider: ProviderName): boolean {
  return runtimeDaemons[provider].role === "dockerd";
}

/** Who makes the cgroups of pods on a target, as its runtime is configured. */
export function podCgroupDriver({ provider, layout }: { provider: ProviderName; layout: Layout }): CgroupDriver {
  return hasSystemd(provider) ? cgroupDriverOf(layout) : "cgroupfs";
}

/** Whether that machine runs on this machine's kernel. */
export function isMachine(provider: ProviderName): boolean {
  return provider.endsWith("-systemd");
}

/** The provider that the tests are run with: `GRAFTLET_TEST_PROVIDER`, `cri` unless given. Throws when there is none of the name. */
export function providerUnderTest(): ProviderName {
  return providerNamed(process.env.GRAFTLET_TEST_PROVIDER ?? "cri", "PROVIDER (GRAFTLET_TEST_PROVIDER)");
}

/** The provider with SSH that tests of SSH alone are run with: the one under test, or `ssh`. */
export function remoteProviderUnderTest(): ProviderName {
  const provider = providerUnderTest();
  return isRemote(provider) ? provider : "ssh";
}

/** The provider of a name. Throws, naming `source` as the place where it stands, when there is none. */
export function providerNamed(name: string, source: string): ProviderName {
  const known = providerNames.find((provider) => provider === name);
  if (known === undefined)
    throw new Error(`${source} is ${JSON.stringify(name)}: it is one of ${providerNames.join(", ")}`);
  return known;
}

function accepts(socket: string): Promise<boolean> {
  return new Promise((resolve) => {
    const connection = connect(socket);
    connection.once("connect", () => {
      connection.destroy();
      resolve(true);
    });
    connection.once("error", () => resolve(false));
  });
}

/** dockerd listens before it answers. @see https://docs.docker.com/reference/api/engine/version/v1.41/#tag/System/operation/SystemPing */
function pongs(socketPath: string): Promise<boolean> {
  return new Promise((resolve) => {
    const asked = request({ socketPath, path: "/_ping", agent: false, timeout: 3000 }, (answer) => {
      answer.resume();
      resolve(answer.statusCode === 200);
    });
    asked.once("timeout", () => asked.destroy(new Error("no answer")));
    asked.once("error", () => resolve(false));
    asked.end();
  });
}
