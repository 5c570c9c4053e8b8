/** Providers of integration tests: `cri` is Debian's containerd 1.6, `cri-2.4` the other one; over SSH the target runs containerd
 *  or the Docker Engine. */
export const providers = ["cri", "cri-2.4", "docker", "ssh", "ssh-docker"] as const;
export type Provider = (typeof providers)[number];

/** True in the full matrix: what takes long is then done at its whole length, which a part of it proves in `make test`. */
export const whole = Boolean(process.env.ALL);

/** Where a file of test/integration is run. */
export interface Runs {
  /** Providers that `make test` runs it with. */
  readonly on: readonly Provider[];
  /** Why those. */
  readonly why: string;
  /** Providers that it can be run with at all: by PROVIDER, by ONLY and by `make test-all`; every one unless given. */
  readonly fits?: readonly Provider[];
  /** The lab that it shares with other files: they run in one process, one after the other, and start it by this name. */
  readonly lab?: string;
  /** How long it takes, beside others on two processors: the longest begin first. */
  readonly seconds: number;
}

const all = providers;
const cri = ["cri"] as const;
const onContainerd = ["cri", "cri-2.4"] as const;
const onDocker = ["docker"] as const;
const here = ["cri", "docker"] as const;
const bothContainerds = ["cri", "cri-2.4", "docker"] as const;
const onEngines = ["docker", "ssh-docker"] as const;
const overSsh = ["ssh", "ssh-docker"] as const;

const cluster = "is about the cluster and its API server: hardly anything of it comes to the runtime";
const stage = "is the kubelet's own work, which a runtime gets as mounts, commands and verbs that its contract holds";

/** Each file of test/integration, without `.test.ts`. */
export const integration: Readonly<Record<string, Runs>> = {
  admission: { on: cri, why: cluster, seconds: 45 },
  certificates: { on: cri, why: cluster, seconds: 75 },
  "chaos-apiserver": { on: cri, why: cluster, fits: onContainerd, seconds: 240 },
  "chaos-kill": { on: cri, why: "kills the agent alone, at random", fits: onContainerd, seconds: 150 },
  "chaos-runtime": { on: cri, why: "kills the runtime alone, at random", fits: onContainerd, seconds: 130 },
  "container-files": {
    on: here,
    why: "log files are written by CRI runtimes in one format, by Docker in another",
    lab: "containers",
    seconds: 80,
  },
  "containers-network": {
    on: here,
    why: "the network is CNI's, or the docker provider's own",
    lab: "containers",
    seconds: 60,
  },
  containers: {
    on: bothContainerds,
    why: "containerd 2 has user namespaces; the docker provider translates each field",
    lab: "containers",
    seconds: 70,
  },
  devices: {
    on: cri,
    why: "plugins talk to graftlet alone; what they ask for a container is in the contract",
    seconds: 60,
  },
  dns: { on: cri, why: stage, seconds: 60 },
  "docker-churn": { on: onDocker, why: "is Docker's alone", fits: onDocker, seconds: 150 },
  "docker-faults": { on: onDocker, why: "is Docker's alone", fits: onEngines, seconds: 260 },
  "docker-meddling": { on: onDocker, why: "is Docker's alone", fits: onEngines, seconds: 130 },
  "docker-share": { on: onDocker, why: "is Docker's alone", fits: onEngines, seconds: 50 },
  "docker-unfit": { on: onDocker, why: "is Docker's alone", fits: onDocker, seconds: 80 },
  "faults-apiserver": { on: cri, why: cluster, seconds: 120 },
  "faults-crash": {
    on: here,
    why: "the moments to be killed at are the runtime's verbs: CRI's, or the docker provider's",
    seconds: 250,
  },
  "faults-runtime": {
    on: bothContainerds,
    why: "each runtime keeps and tells other things after its death",
    seconds: 110,
  },
  harness: { on: cri, why: "is about the tests' own cluster", seconds: 60 },
  "helm-admission": { on: cri, why: "brings a provider of its own", fits: onContainerd, seconds: 130 },
  "helm-first": { on: cri, why: "brings a provider of its own", fits: onContainerd, seconds: 200 },
  "helm-rights": { on: cri, why: "brings a provider of its own", fits: onContainerd, seconds: 200 },
  "helm-service-account": { on: cri, why: "brings a provider of its own", fits: onContainerd, seconds: 70 },
  helm: { on: cri, why: "brings a provider of its own", fits: onContainerd, seconds: 220 },
  image: { on: cri, why: "is about graftlet's own image", fits: onContainerd, seconds: 40 },
  "images-faults": { on: here, why: "pulls are the runtime's, with errors and hangs of its own", seconds: 90 },
  images: { on: here, why: "pulls and the names of images are the runtime's", seconds: 50 },
  "in-pod": { on: cri, why: "brings a provider of its own", fits: onContainerd, seconds: 60 },
  kubectl: {
    on: ["cri", "cri-2.4", "docker", "ssh"],
    why: "streams and logs take another way with each; over SSH to Docker they take both",
    seconds: 280,
  },
  "kubelet-auth": { on: cri, why: cluster, seconds: 120 },
  leave: { on: cri, why: "brings providers of its own", fits: onContainerd, seconds: 90 },
  lifecycle: {
    on: here,
    why: "hooks and ephemeral containers need processes and namespaces of the runtime's making",
    lab: "containers",
    seconds: 80,
  },
  "metrics-server": { on: cri, why: cluster, fits: bothContainerds, seconds: 60 },
  metrics: { on: cri, why: cluster, seconds: 90 },
  "node-conditions": { on: cri, why: cluster, seconds: 150 },
  node: { on: cri, why: cluster, seconds: 80 },
  "pods-end": {
    on: here,
    why: "the runtime ends containers: by CRI, or by the Docker Engine's API",
    lab: "containers",
    seconds: 80,
  },
  pods: { on: all, why: "a pod's whole life, once with each provider", seconds: 110 },
  probes: { on: cri, why: stage, lab: "containers", seconds: 120 },
  remove: {
    on: ["cri", "docker", "ssh"],
    why: "what a node leaves is another with each runtime, and is removed elsewhere over SSH",
    seconds: 120,
  },
  resize: {
    on: here,
    why: "CRI and the Docker Engine change resources of running containers in other ways",
    seconds: 110,
  },
  "runtime-class": {
    on: bothContainerds,
    why: "handlers are told by containerd 2 alone, and Docker's are its runtimes",
    seconds: 70,
  },
  "several-nodes": { on: cri, why: "brings providers of its own", fits: onContainerd, seconds: 90 },
  "several-targets": { on: cri, why: "brings providers of its own", fits: onContainerd, seconds: 90 },
  "ssh-claim": { on: ["ssh"], why: "is about SSH alone", fits: overSsh, seconds: 50 },
  "ssh-cut": { on: [], why: "takes minutes of a cut link: make link-cut", fits: overSsh, seconds: 400 },
  "ssh-faults": { on: ["ssh"], why: "is about SSH alone", fits: overSsh, seconds: 150 },
  "ssh-link": { on: ["ssh"], why: "is about SSH alone", fits: overSsh, seconds: 110 },
  "ssh-round-trips": { on: [], why: "measures: its numbers stand in docs/performance.md", fits: overSsh, seconds: 60 },
  "ssh-settings": { on: ["ssh"], why: "is about SSH alone", fits: overSsh, seconds: 60 },
  "ssh-users": { on: ["ssh"], why: "is about SSH alone", fits: overSsh, seconds: 110 },
  startup: { on: cri, why: cluster, seconds: 110 },
  "static-pods": { on: cri, why: cluster, seconds: 100 },
  stats: { on: here, why: "a container's cgroup and layer are found in other places", seconds: 60 },
  takeover: { on: cri, why: "the kubelet, which it is about, speaks CRI alone", seconds: 90 },
  "volumes-images": {
    on: ["cri-2.4", "docker"],
    why: "containerd 2 alone mounts images, and with Docker the pod is held",
    lab: "volumes",
    seconds: 40,
  },
  "volumes-limits": { on: here, why: "what a container wrote is measured by the runtime", lab: "volumes", seconds: 60 },
  "volumes-local": { on: cri, why: "needs no runtime", seconds: 10 },
  "volumes-objects": {
    on: ["cri", "ssh"],
    why: "volumes are files of a Host: this machine's or over SSH",
    lab: "volumes",
    seconds: 80,
  },
  "volumes-propagation": {
    on: bothContainerds,
    why: "containerd 2 mounts read-only in depth, Docker binds in its own way",
    lab: "volumes",
    seconds: 70,
  },
  "volumes-trouble": { on: cri, why: stage, seconds: 60 },
  volumes: {
    on: here,
    why: "mounts are CRI's or Docker's; all other volumes are files below them",
    lab: "volumes",
    seconds: 70,
  },
  // The last of those that share its lab: it ends the agent.
  "volumes-subpath": {
    on: ["cri", "ssh"],
    why: "volumes are files of a Host: this machine's or over SSH",
    lab: "volumes",
    seconds: 100,
  },
};

/** Files of test/contract that take longer than the others, seconds. */
export const slowContracts: Readonly<Record<string, number>> = {
  "host-ssh-trouble": 190,
  "runtime-cri": 170,
  "runtime-docker": 170,
  "runtime-docker-ssh": 150,
  "bind-part": 130,
  "host-ssh": 130,
  "runtime-cri-ssh": 100,
  "docker-forward": 140,
  "host-ssh-link": 90,
};
