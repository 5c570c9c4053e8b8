import { ofDocker } from "./matrix-of-docker.ts";
import { ofGuests } from "./matrix-of-guests.ts";
import { bringsOwn } from "./matrix-of-own.ts";
import { ofPods } from "./matrix-of-pods.ts";
import { ofResources } from "./matrix-of-resources.ts";

/** Providers of integration tests: `cri` is Debian's containerd 1.6, `cri-2.4` the other one, `docker` Debian's Docker Engine 20.10,
 *  `docker-28` and `docker-29` are built as well; over SSH the target runs containerd or the Docker Engine; with `ssh-systemd` and
 *  `ssh-docker-systemd` it is a machine with a systemd, which makes the cgroups of pods, and with `ssh-guest` and `ssh-docker-guest`
 *  one with a kernel of its own as well. */
export const providers = [
  "cri",
  "cri-2.4",
  "docker",
  "docker-28",
  "docker-29",
  "ssh",
  "ssh-docker",
  "ssh-systemd",
  "ssh-docker-systemd",
  "ssh-guest",
  "ssh-docker-guest",
] as const;
export type Provider = (typeof providers)[number];
/** Those whose target has a kernel of its own. */
export type Guest = Extract<Provider, `${string}-guest`>;

/** True for a provider whose target has a kernel of its own, and shares no files, processes or cgroups with this machine. */
export const isGuest = (provider: string | undefined): provider is Guest => provider?.endsWith("-guest") ?? false;

/** True in the full matrix: what takes long is then done at its whole length, which a part of it proves in `make test`. */
export const whole = Boolean(process.env.ALL);

/** Where a file of test/integration is run. */
export interface Runs {
  /** Providers that `make test` runs it with. */
  readonly on: readonly Provider[];
  /** Providers that continuous integration runs it with besides, by `make test-more`: what goes wrong, and what is much the same with
   *  another provider. */
  readonly more?: readonly Provider[];
  /** Why those. */
  readonly why: string;
  /** Providers that it can be run with at all: by PROVIDER, by ONLY and by `make test-all`; `usual` unless given. */
  readonly fits?: readonly Provider[];
  /** The lab that it shares with other files: they run in one process, one after the other, and start it by this name. */
  readonly lab?: string;
  /** True for a benchmark: it runs after all other files, with nothing beside it. */
  readonly alone?: boolean;
  /** How long it takes, beside others on two processors: the longest begin first. */
  readonly seconds: number;
}

/** Providers that a file fits which says nothing of it. One that `ssh-systemd` makes a difference to says that it fits that too:
 *  on such a target there are no programs but Debian's. A guest is ten times slower and shares neither files nor processes with this
 *  machine: a file says that it fits that, too. */
export const usual: readonly Provider[] = ["cri", "cri-2.4", "docker", "ssh", "ssh-docker"];

const all = [...usual, "ssh-systemd", "ssh-docker-systemd"] as const;
/** With the Docker Engine whose images and layers containerd keeps, too, whose ways to list, measure and remove them are others. */
const withStore = "docker-29";
const cri = ["cri"] as const;
const onContainerd = ["cri", "cri-2.4"] as const;
const onDocker = ["docker"] as const;
const here = ["cri", "docker"] as const;
const bothContainerds = ["cri", "cri-2.4", "docker"] as const;
const overSsh = ["ssh", "ssh-docker"] as const;
const alsoSystemd = [...overSsh, "ssh-systemd"] as const;
const onSystemd = ["ssh-systemd"] as const;

const cluster = "is about the cluster and its API server: hardly anything of it comes to the runtime";
const stage = "is the kubelet's own work, which a runtime gets as mounts, commands and verbs that its contract holds";

/** Each file of test/integration, without `.test.ts`. */
export const integration: Readonly<Record<string, Runs>> = {
  ...bringsOwn,
  ...ofDocker,
  ...ofPods,
  ...ofResources,
  ...ofGuests,
  admission: { on: cri, why: cluster, seconds: 20 },
  "bench-guard": {
    on: [],
    more: cri,
    why: "the kubelet, which it is held against, speaks CRI alone",
    fits: cri,
    alone: true,
    seconds: 120,
  },
  "cgroup-faults": {
    on: [],
    more: onSystemd,
    why: "what others do to cgroups the kernel shows in files, systemd in units",
    fits: all,
    seconds: 110,
  },
  certificates: { on: cri, why: cluster, seconds: 35 },
  "chaos-apiserver": { on: [], more: cri, why: cluster, fits: onContainerd, seconds: 235 },
  "chaos-kill": { on: [], more: cri, why: "kills the agent alone, at random", fits: onContainerd, seconds: 70 },
  "chaos-runtime": { on: [], more: cri, why: "kills the runtime alone, at random", fits: onContainerd, seconds: 95 },
  "container-files": {
    on: here,
    why: "log files are written by CRI runtimes in one format, by Docker in another",
    lab: "containers",
    seconds: 40,
  },
  "containers-network": {
    on: here,
    why: "the network is CNI's, or the docker provider's own",
    fits: [...usual, withStore],
    lab: "containers",
    seconds: 60,
  },
  containers: {
    on: bothContainerds,
    why: "containerd 2 has user namespaces; the docker provider translates each field",
    fits: [...all, withStore],
    lab: "containers",
    seconds: 55,
  },
  "csi-crash": {
    on: [],
    why: "the moments to be killed at are the driver's calls, which no runtime sees",
    seconds: 60,
  },
  "csi-driver": {
    on: [],
    why: "is about the driver that CSI is tested with, which the real kubelet shows as well",
    fits: cri,
    seconds: 80,
  },
  "csi-leave": {
    on: [],
    more: cri,
    why: "the order of what a node gives back is its own; the driver's pods mount through CRI or Docker",
    fits: ["cri", "docker", "ssh", "ssh-docker-guest"],
    seconds: 60,
  },
  "csi-faults": {
    on: [],
    more: cri,
    why: "is about drivers that do not do as they should, which talk to graftlet alone",
    fits: cri,
    seconds: 60,
  },
  csi: {
    on: cri,
    more: ["ssh"],
    why: "drivers talk to graftlet alone, over SSH through the link; their mounts Docker mounts otherwise than CRI",
    seconds: 80,
  },
  daemonsets: {
    on: cri,
    why: "what is left out never comes to the runtime; over SSH a node of its own network leaves all out by default; agents write CNI's files",
    fits: [...onContainerd, "ssh"],
    seconds: 40,
  },
  dns: { on: cri, why: stage, seconds: 25 },
  eviction: {
    on: cri,
    why: "what runs short is the target's, and who uses it the runtime's to say",
    seconds: 230,
  },
  "eviction-crash": {
    on: [],
    why: "the moments to be killed at are the runtime's verbs; eviction itself is also done over SSH",
    seconds: 200,
  },
  "eviction-crash-disk": {
    on: [],
    why: "what is freed and who goes is decided as with memory, which is done with each provider",
    fits: onContainerd,
    seconds: 330,
  },
  "faults-apiserver": { on: [], more: cri, why: cluster, seconds: 85 },
  "faults-crash": {
    on: [],
    why: "the moments to be killed at are the runtime's verbs: CRI's, or the docker provider's",
    seconds: 110,
  },
  "faults-runtime": {
    on: [],
    more: cri,
    why: "each runtime keeps and tells other things after its death",
    seconds: 90,
  },
  harness: { on: cri, why: "is about the tests' own cluster", seconds: 30 },
  doctor: { on: ["ssh"], why: "looks at targets of each kind", seconds: 30 },
  arm64: { on: [], more: cri, why: "is about graftlet's own processor", fits: onContainerd, seconds: 60 },
  image: { on: [], why: "is about graftlet's own image", fits: onContainerd, seconds: 120 },
  "image-collection": {
    on: cri,
    more: onDocker,
    why: "which images go differs where others use the runtime, and how: by ID, by name, by all names at once",
    fits: [...usual, withStore],
    seconds: 120,
  },
  "images-credentials": {
    on: cri,
    why: "credentials are graftlet's own machine's, and each runtime takes them in its own way",
    seconds: 40,
  },
  "images-faults": {
    on: [],
    why: "pulls are the runtime's, with errors and hangs of its own",
    seconds: 105,
  },
  images: {
    on: here,
    why: "pulls and the names of images are the runtime's",
    fits: [...usual, withStore],
    seconds: 45,
  },
  kubectl: {
    on: cri,
    more: ["ssh-docker"],
    why: "streams and logs take another path with each; over SSH to Docker they take Docker's as well",
    fits: [...all, withStore],
    seconds: 130,
  },
  "kubelet-auth": { on: cri, why: cluster, seconds: 45 },
  leave: { on: [], more: cri, why: "brings providers of its own", fits: onContainerd, seconds: 95 },
  lifecycle: {
    on: here,
    why: "hooks and ephemeral containers need processes and namespaces of the runtime's making",
    lab: "containers",
    fits: all,
    seconds: 50,
  },
  "log-rotation-crash": {
    on: [],
    why: "the moments to be killed at are CRI's verb; Docker rotates its own logs",
    fits: ["cri", "cri-2.4", "ssh"],
    seconds: 60,
  },
  "log-rotation": {
    on: cri,
    why: "CRI runtimes reopen logs, Docker rotates its own; over SSH files and the kernel's log are the target's",
    seconds: 60,
  },
  "metrics-server": { on: [], more: cri, why: cluster, fits: bothContainerds, seconds: 75 },
  machines: { on: onSystemd, why: "is about the tests' own machines", fits: onSystemd, seconds: 15 },
  metrics: { on: cri, why: cluster, seconds: 40 },
  "pod-burst": { on: [], more: cri, why: "starts are paced above the providers", fits: cri, seconds: 30 },
  "node-logs": {
    on: ["cri", "ssh-systemd"],
    why: "only a target with systemd has a journal; the commands run on the target, here or over SSH",
    fits: all,
    seconds: 40,
  },
  "node-allocatable": {
    on: cri,
    more: onSystemd,
    why: "limits are the target's, set by files or by systemd; the runtime makes its cgroups below them",
    fits: providers,
    seconds: 90,
  },
  "node-conditions": { on: cri, why: cluster, seconds: 90 },
  node: { on: cri, why: cluster, seconds: 95 },
  "pods-end": {
    on: here,
    why: "the runtime ends containers: by CRI, or by the Docker Engine's API",
    lab: "containers",
    fits: all,
    seconds: 40,
  },
  pods: {
    on: here,
    more: ["ssh-docker", "ssh-systemd"],
    why: "a pod's whole life, once with each provider",
    fits: providers,
    seconds: 70,
  },
  probes: { on: cri, why: stage, lab: "containers", seconds: 25 },
  remove: {
    on: ["docker", "ssh"],
    why: "what a node leaves is another with each runtime, and is removed elsewhere over SSH",
    fits: all,
    seconds: 35,
  },
  resize: {
    on: cri,
    why: "CRI and the Docker Engine change resources of running containers in other ways",
    fits: all,
    seconds: 65,
  },
  "runtime-class": {
    on: ["cri-2.4"],
    why: "handlers are told by containerd 2 alone, and Docker's are its runtimes",
    seconds: 30,
  },
  service: {
    on: onSystemd,
    why: "needs a systemd, on which graftlet is a service beside its runtime",
    fits: onSystemd,
    seconds: 80,
  },
  "several-nodes": { on: [], more: cri, why: "brings providers of its own", fits: onContainerd, seconds: 65 },
  "several-targets": { on: [], more: cri, why: "brings providers of its own", fits: onContainerd, seconds: 70 },
  shares: {
    on: onSystemd,
    why: "the kernel divides by what files or systemd set, and the runtime below it (on cgroup v2: guest-limits, guest-cgroupfs); the session is SSH's",
    fits: providers,
    seconds: 35,
  },
  shutdown: {
    on: onSystemd,
    why: "needs a logind; how pods end is in pods-end, with each runtime",
    fits: onSystemd,
    seconds: 90,
  },
  "ssh-claim": { on: [], more: ["ssh"], why: "is about SSH alone", fits: alsoSystemd, seconds: 70 },
  "ssh-cut": { on: [], why: "takes minutes of a cut link: make link-cut", fits: overSsh, seconds: 400 },
  "ssh-faults": { on: [], more: ["ssh"], why: "is about SSH alone", fits: overSsh, seconds: 205 },
  "ssh-link": { on: [], more: ["ssh"], why: "is about SSH alone", fits: alsoSystemd, seconds: 180 },
  "ssh-round-trips": { on: [], more: ["ssh"], why: "is about SSH alone", fits: overSsh, seconds: 200 },
  "ssh-settings": { on: [], more: ["ssh"], why: "is about SSH alone", fits: overSsh, seconds: 200 },
  "ssh-users": {
    on: ["ssh"],
    why: "is about SSH alone, and starts clusters of both kinds",
    fits: ["ssh"],
    seconds: 35,
  },
  startup: { on: [], more: cri, why: cluster, seconds: 40 },
  "static-pods": { on: cri, why: cluster, seconds: 70 },
  stats: {
    on: cri,
    why: "a container's cgroup and layer are found in other places",
    fits: [...all, withStore],
    seconds: 135,
  },
  "systemd-faults": {
    on: [],
    more: onSystemd,
    why: "is about systemd, its bus and its slices",
    fits: onSystemd,
    seconds: 100,
  },
  takeover: { on: [], more: cri, why: "the kubelet, which it is about, speaks CRI alone", seconds: 60 },
  "volumes-images": {
    on: ["cri-2.4"],
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
    fits: all,
    seconds: 25,
  },
  "volumes-propagation": {
    on: ["cri-2.4"],
    why: "containerd 2 mounts read-only in depth, Docker binds in its own way",
    lab: "volumes",
    seconds: 70,
  },
  "volumes-trouble": { on: cri, why: stage, seconds: 40 },
  claims: {
    on: cri,
    why: "mounts are made by commands of a Host: this machine's or over SSH; Docker mounts them otherwise than CRI",
    seconds: 90,
  },
  "claims-database": {
    on: [],
    why: "data outlive failures of the agent, of drivers and of the link; how Docker mounts is in claims and csi",
    fits: ["cri", "docker", "ssh"],
    seconds: 180,
  },
  "claims-expansion": {
    on: cri,
    why: "drivers talk to graftlet alone, over SSH through the link; file systems grow by commands of a Host",
    seconds: 30,
  },
  "claims-expansion-crash": { on: [], more: cri, why: stage, seconds: 50 },
  "claims-many": { on: [], more: cri, why: stage, fits: cri, seconds: 125 },
  "claims-provisioned": {
    on: [],
    why: "a provisioner of others' that runs in pods, and volumes as claims has them",
    seconds: 35,
  },
  volumes: {
    on: here,
    why: "mounts are CRI's or Docker's; all other volumes are files below them",
    lab: "volumes",
    fits: all,
    seconds: 70,
  },
  // The last of those that share its lab: it ends the agent.
  "volumes-subpath": {
    on: cri,
    why: "volumes are files of a Host: this machine's or over SSH",
    lab: "volumes",
    fits: all,
    seconds: 65,
  },
};
