import type { Provider } from "./matrix.ts";

/** Runs of continuous integration while each provider was given nearly every file: files of test/integration by provider. */
export const ranBefore: Readonly<Record<Provider, readonly string[]>> = {
  cri: words(`
    admission certificates chaos-apiserver chaos-kill chaos-runtime container-files containers-network containers devices
    dns faults-apiserver faults-crash faults-runtime harness helm-admission helm-first helm-rights helm-service-account
    helm image images-faults images in-pod kubectl kubelet-auth leave lifecycle metrics-server metrics node-conditions
    node pods-end pods probes remove resize runtime-class several-nodes several-targets startup static-pods stats takeover
    volumes-images volumes-limits volumes-local volumes-objects volumes-propagation volumes-subpath volumes-trouble
    volumes`),
  "cri-2.4": words(`
    container-files containers-network containers dns faults-crash faults-runtime images-faults images kubectl lifecycle
    pods-end pods probes remove resize runtime-class stats takeover volumes-images volumes-limits volumes-local
    volumes-objects volumes-propagation volumes-subpath volumes-trouble volumes`),
  docker: words(`
    container-files containers-network containers dns docker-churn docker-faults docker-meddling docker-share docker-unfit
    faults-crash faults-runtime images-faults images kubectl lifecycle pods-end pods probes remove resize runtime-class
    stats takeover volumes-images volumes-limits volumes-local volumes-objects volumes-propagation volumes-subpath
    volumes-trouble volumes`),
  ssh: words(`
    containers kubectl pods remove ssh-claim ssh-faults ssh-link ssh-settings ssh-users volumes-objects volumes-subpath`),
  "ssh-docker": words("kubectl pods"),
  "ssh-systemd": [],
  "ssh-docker-systemd": [],
  "ssh-guest": [],
  "ssh-docker-guest": [],
};

/** Files that a provider no longer runs in continuous integration, and what proves there what they proved. */
export interface Moved {
  readonly files: readonly string[];
  readonly was: Provider;
  /** `integration FILE with PROVIDER`, `contract FILE` or `unit FILE`, each of which continuous integration runs; `integration same` is each of
   *  these files with another provider. */
  readonly by: readonly string[];
  readonly why: string;
}

const contractOfCri = ["contract runtime-cri", "integration pods with cri-2.4", "integration containers with cri-2.4"];

export const moved: readonly Moved[] = [
  {
    files: ["volumes-images"],
    was: "cri",
    by: ["integration volumes-images with cri-2.4", "unit runtime/image-volumes"],
    why: "containerd 1.6 mounts no images: all that was asked there is asked of 2.4 as well",
  },
  {
    files: words("dns pods-end probes lifecycle"),
    was: "cri-2.4",
    by: ["integration same", ...contractOfCri],
    why: "the order of a pod's life, its hooks, probes and names are graftlet's: it calls CRI as with 1.6, and the contract holds what 2.4 answers (stop within the grace, execSync and its timeout, exit codes)",
  },
  {
    files: words("container-files containers-network stats"),
    was: "cri-2.4",
    by: ["integration same", ...contractOfCri, "integration kubectl with cri-2.4"],
    why: "log files are in CRI's one format and read by graftlet, networks are the same CNI plugins, cgroups are read by graftlet; kubectl logs are read of 2.4 too",
  },
  {
    files: words("images images-faults"),
    was: "cri-2.4",
    by: ["integration same", ...contractOfCri],
    why: "policies, back-off and credentials are graftlet's; the contract pulls from 2.4 what is there and what is not",
  },
  {
    files: ["faults-crash"],
    was: "cri-2.4",
    by: ["integration same", "integration faults-runtime with cri-2.4", ...contractOfCri],
    why: "the moments are those between CRI's calls, the same; what 2.4 no longer knows when graftlet comes back is asked by faults-runtime",
  },
  {
    files: words("remove takeover resize"),
    was: "cri-2.4",
    by: ["integration same", ...contractOfCri],
    why: "graftlet and the kubelet find what is theirs by labels and annotations, which the contract has 2.4 keep, and change resources by one call of CRI",
  },
  {
    files: words("volumes volumes-limits volumes-local volumes-objects volumes-subpath volumes-trouble"),
    was: "cri-2.4",
    by: ["integration same", "integration volumes-propagation with cri-2.4", ...contractOfCri],
    why: "volumes are made on a Host and come to the runtime as mounts: 2.4 differs in those that are read-only in depth, which volumes-propagation asks",
  },
  {
    files: ["dns"],
    was: "docker",
    by: ["integration same", "contract docker-sandboxes", "integration containers-network with docker"],
    why: "graftlet writes resolv.conf; that Docker takes it word for word is in the contract, and the policies are asked with Docker by containers-network",
  },
  {
    files: ["probes"],
    was: "docker",
    by: ["integration same", "contract runtime-docker", "contract docker-streams", "integration pods with docker"],
    why: "probes are graftlet's; those by a command are execSync, whose exit codes, timeout and end the contract holds",
  },
  {
    files: ["takeover"],
    was: "docker",
    by: ["integration takeover with cri"],
    why: "the file is skipped there: the kubelet speaks CRI alone",
  },
  {
    files: words("volumes-local volumes-objects volumes-subpath volumes-trouble"),
    was: "docker",
    by: ["integration same", "integration volumes with docker", "integration volumes-propagation with docker"],
    why: "volumes are made on a Host and come to the Engine as binds, which volumes and volumes-propagation ask with Docker",
  },
  {
    files: ["containers"],
    was: "ssh",
    by: ["integration containers with cri", "contract runtime-cri-ssh", "integration pods with ssh"],
    why: "a container's fields go to the same containerd in the same calls; the contract holds that they pass the link",
  },
];

function words(text: string): readonly string[] {
  return text.trim().split(/\s+/);
}
