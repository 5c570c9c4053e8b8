/** A test of `make test`. */
export interface FaultTest {
  readonly part: "unit" | "contract" | "integration";
  /** What the node of an integration test is run with: containerd unless given. */
  readonly provider?: "docker" | "ssh";
  readonly file: string;
  /** The title of one test in the file, or its beginning; all of them unless given. */
  readonly title?: string;
}

/** A small mistake that somebody could make, and the tests that have to find it. */
export interface Fault {
  readonly name: string;
  /** A glob that matches one file of the checkout. */
  readonly file: string;
  /** Stands once in the file. */
  readonly text: string;
  readonly becomes: string;
  /** What a user would see of it. */
  readonly breaks: string;
  /** How the tests tell, as `make faults` showed it. */
  readonly assertion: string;
  /** Each of them fails. */
  readonly foundBy: readonly FaultTest[];
}

const unit = (file: string, title?: string): FaultTest => ({
  part: "unit",
  file: `test/unit/${file}.test.ts`,
  ...(title && { title }),
});
const contract = (file: string, title?: string): FaultTest => ({
  part: "contract",
  file: `test/contract/${file}.test.ts`,
  ...(title && { title }),
});
const integration = (file: string, title: string, provider?: FaultTest["provider"]): FaultTest => ({
  part: "integration",
  file: `test/integration/${file}.test.ts`,
  title,
  ...(provider && { provider }),
});

/** Of every area and provider some; most are found on a real cluster alone. */
export const faults: readonly Fault[] = [
  {
    name: "manifest-change",
    file: "src/**/manifest-set.ts",
    text: "return before?.text === file.text ? before",
    becomes: "return before ? before",
    breaks: "A static pod's manifest that is edited changes nothing until graftlet is started again.",
    assertion: "TODO",
    foundBy: [unit("sources/file")],
  },
  {
    name: "manifest-url-header",
    file: "src/**/sources/http.ts",
    text: "headers: { ...basic(url), ...given }",
    becomes: "headers: { ...basic(url) }",
    breaks: "A server of manifests that asks for staticPodURLHeader refuses the node: its static pods never start.",
    assertion: "TODO",
    foundBy: [unit("sources/http", "one pod or a list of pods, asked for with the headers given")],
  },
  {
    name: "pod-removed",
    file: "src/**/sources/apiserver.ts",
    text: 'type === "deleted" && reflector.get(pod.metadata.namespace, pod.metadata.name) ? undefined : push()',
    becomes: 'type === "deleted" ? undefined : push()',
    breaks: "A pod that is deleted by force runs on until another pod of the node changes.",
    assertion: "TODO",
    foundBy: [integration("pods-end", "deletion by force")],
  },
  {
    name: "host-port-protocol",
    file: "src/admission/host-ports.ts",
    text: "return sameAddress && a.port === b.port && a.protocol === b.protocol;",
    becomes: "return sameAddress && a.port === b.port && a.protocol !== b.protocol;",
    breaks: "Two pods get one host port; a server of UDP and one of TCP cannot share a port's number.",
    assertion: "TODO",
    foundBy: [unit("admission/chain")],
  },
  {
    name: "deadline-from-now",
    file: "src/sync/deadline.ts",
    text: "status.get(pod.metadata.uid) ?? pod.status ?? {}",
    becomes: "status.get(pod.metadata.uid) ?? {}",
    breaks: "After a restart of graftlet a pod's activeDeadlineSeconds begin anew.",
    assertion: "TODO",
    foundBy: [unit("sync/deadline")],
  },
  {
    name: "grace-period",
    file: "providers/cri/pods.ts",
    text: "{ containerId, timeout: wholeSeconds(graceSeconds) }",
    becomes: "{ containerId, timeout: 0n }",
    breaks: "Containers are killed at once in place of having their grace period.",
    assertion: "TODO",
    foundBy: [integration("pods-end", "deletion: SIGTERM is handled")],
  },
  {
    name: "newest-container",
    file: "src/pleg/observe.ts",
    text: "a.createdAt < b.createdAt ? 1 : -1",
    becomes: "a.createdAt < b.createdAt ? -1 : 1",
    breaks: "After a restart a pod's status shows the container that ended, not the one that runs.",
    assertion: "TODO",
    foundBy: [unit("pleg/pleg")],
  },
  {
    name: "delete-at-once",
    file: "src/status/pod-api.ts",
    text: "{ gracePeriodSeconds: 0, preconditions: { uid } }",
    becomes: "{ preconditions: { uid } }",
    breaks: "A deleted pod whose containers have ended stays Terminating for ever.",
    assertion: "TODO",
    foundBy: [integration("pods-end", "deletion: SIGTERM is handled")],
  },
  {
    name: "probe-port-name",
    file: "src/pod/resolve-port.ts",
    text: "container.ports?.find(({ name }) => name === port)?.containerPort",
    becomes: "container.ports?.find(({ name }) => name === port)?.hostPort",
    breaks: "Probes and hooks that name their port fail.",
    assertion: "TODO",
    foundBy: [integration("probes", "by HTTP at a named port")],
  },
  {
    name: "removed-key",
    file: "src/volumes/atomic-writer.ts",
    text: '!name.startsWith("..") && !wanted.has(name)',
    becomes: 'name.startsWith("..") && !wanted.has(name)',
    breaks: "A key that is removed from a ConfigMap leaves a dangling link in the volumes of running pods.",
    assertion: "TODO",
    foundBy: [unit("volumes/atomic-writer")],
  },
  {
    name: "volume-group",
    file: "src/volumes/group.ts",
    text: "const directoryOfGroup = 0o2110;",
    becomes: "const directoryOfGroup = 0o110;",
    breaks: "Files that a pod with fsGroup makes in a volume belong to whoever made them, not to the group.",
    assertion: "TODO",
    foundBy: [integration("volumes", "fsGroup: volumes belong to the pod's group")],
  },
  {
    name: "subpath-mode",
    file: "src/host/bind-part.ts",
    text: '&& inside && chmod "$mode" . ||',
    becomes: "&& inside ||",
    breaks: "A directory that is made for a subPath is root's alone: a container of another user cannot read it.",
    assertion: "TODO",
    foundBy: [integration("volumes-subpath", "a directory, a file, one that is missing")],
  },
  {
    name: "host-path-parents",
    file: "src/volumes/kinds/host-path.ts",
    text: "mode: 0o755, parents: true }",
    becomes: "mode: 0o755, parents: false }",
    breaks: "A hostPath of type DirectoryOrCreate is not made where its parent is missing: the pod waits for ever.",
    assertion: "TODO",
    foundBy: [integration("volumes", "hostPath: every type takes what it names")],
  },
  {
    name: "dollar-escape",
    file: "src/pod/expand.ts",
    text: 'text[at + 1] === "$" ? at + 1 : at;',
    becomes: "at;",
    breaks: "$$(NAME) in a command comes out with its second dollar sign.",
    assertion: "TODO",
    foundBy: [unit("pod/expand")],
  },
  {
    name: "pull-always",
    file: "src/runtime/images/puller.ts",
    text: 'if (policy === "Always") return undefined;',
    becomes: 'if (policy === "Always" && !seen) return undefined;',
    breaks: "With imagePullPolicy Always a container runs the image that is on the machine, however old.",
    assertion: "TODO",
    foundBy: [integration("images", "IfNotPresent pulls once, Always each time")],
  },
  {
    name: "crash-loop",
    file: "src/runtime/crash-loop.ts",
    text: "const initialMs = 10_000;",
    becomes: "const initialMs = 1_000;",
    breaks: "A container that fails at once is started again every second.",
    assertion: "TODO",
    foundBy: [integration("pods", "a container that keeps failing is restarted at once")],
  },
  {
    name: "rotated-logs",
    file: "src/gc/garbage.ts",
    text: "name === file || name.startsWith(`${file}.`)",
    becomes: "name === file",
    breaks: "Rotated logs of containers that are gone fill the disk.",
    assertion: "TODO",
    foundBy: [unit("gc/garbage")],
  },
  {
    name: "layer-limit",
    file: "src/eviction/storage-limits.ts",
    text: "if ((usage.containers.get(name) ?? 0) > bytes)",
    becomes: "if ((usage.volumes.get(name) ?? 0) > bytes)",
    breaks: "A container may write more into its layer than its limit of ephemeral-storage.",
    assertion: "TODO",
    foundBy: [integration("volumes-limits", "a container that writes more into its own layer")],
  },
  {
    name: "device-variables",
    file: "src/devices/container-devices.ts",
    text: "environment: new Map(pairs(({ envs }) => envs)),",
    becomes: "environment: new Map(pairs(({ annotations }) => annotations)),",
    breaks: "Containers do not get the variables that name their devices: NVIDIA's runtime gives them none.",
    assertion: "TODO",
    foundBy: [integration("devices", "a pod is scheduled to the node for its devices")],
  },
  {
    name: "resize-pod-cgroup",
    file: "src/runtime/resize.ts",
    text: "[...limits].reverse()) if (!widens)",
    becomes: "[...limits].reverse()) if (widens)",
    breaks: "A pod whose limits are lowered in place keeps the old ones as a whole.",
    assertion: "TODO",
    foundBy: [integration("resize", "its containers go on with what they are given")],
  },
  {
    name: "proxy-may-forward",
    file: "src/server/routes.ts",
    text: 'new Set(["run", "exec", "attach", "portForward"])',
    becomes: 'new Set(["run", "exec", "attach"])',
    breaks: "Whoever may read nodes/proxy can connect to every port in every pod.",
    assertion: "TODO",
    foundBy: [integration("kubelet-auth", "get on proxy reads, create on proxy runs")],
  },
  {
    name: "exec-exit-code",
    file: "providers/docker/**/exec-stream.ts",
    text: "return await running.ended(gone);",
    becomes: "return (await running.ended(gone)) === 0 ? 0 : 1;",
    breaks: "kubectl exec on a node with Docker ends with 1, whatever code the command failed with.",
    assertion: "TODO",
    foundBy: [integration("kubectl", "gives the command's exit code", "docker")],
  },
  {
    name: "forward-refused",
    file: "src/streams/port-forward.ts",
    text: "return spoken || signal.aborted ?",
    becomes: "return !spoken || signal.aborted ?",
    breaks: "kubectl port-forward says nothing where nobody listens on the port.",
    assertion: "TODO",
    foundBy: [integration("kubectl", "tells when nobody listens on the port", "docker")],
  },
  {
    name: "log-since",
    file: "src/server/log-options.ts",
    text: "now - sinceSeconds * 1000",
    becomes: "now - sinceSeconds",
    breaks: "kubectl logs --since=1h shows the last seconds.",
    assertion: "TODO",
    foundBy: [integration("kubectl", "--tail, --limit-bytes, --timestamps, --since")],
  },
  {
    name: "renewed-certificate",
    file: "src/server/server.ts",
    text: "[deps.certificate.onChange(renew), deps.clientCA.onChange(renew)]",
    becomes: "[deps.clientCA.onChange(renew)]",
    breaks:
      "The kubelet API goes on with a certificate that has been renewed, until that has expired: no logs, no exec.",
    assertion: "TODO",
    foundBy: [integration("certificates", "a certificate is renewed before it ends")],
  },
  {
    name: "lease-holder",
    file: "src/node/lease.ts",
    text: "(durationSeconds * 1000) / 4;",
    becomes: "durationSeconds * 1000;",
    breaks: "The node's lease runs out between two renewals: the control plane takes a healthy node for lost.",
    assertion: "TODO",
    foundBy: [unit("node/lease")],
  },
  {
    name: "docker-host-ip",
    file: "providers/docker/**/sandbox-spec.ts",
    text: "HostIp: port.hostIp, HostPort",
    becomes: 'HostIp: "", HostPort',
    breaks: "A hostPort with a hostIP is open to everybody on a node with Docker.",
    assertion: "TODO",
    foundBy: [integration("containers-network", "pods share a host port that differs in its address", "docker")],
  },
  {
    name: "docker-log-file",
    file: "providers/docker/**/log-link.ts",
    text: "return `${id}-json.log`;",
    becomes: "return `${id}.log`;",
    breaks: "Log collectors find dangling links on a node with Docker.",
    assertion: "TODO",
    foundBy: [integration("containers-network", "logs lie where log collectors look", "docker")],
  },
  {
    name: "ssh-reconnect",
    file: "providers/ssh/**/link.ts",
    text: "if (this.#live.size > 0 && !wentSilent(why))",
    becomes: "if (!wentSilent(why))",
    breaks: "A target whose sshd ends counts as reachable: its node stays Ready, and probes fail on healthy pods.",
    assertion: "TODO",
    foundBy: [integration("ssh-link", "sshd is killed and started", "ssh")],
  },
  {
    name: "ssh-sudo",
    file: "providers/ssh/**/privileges.ts",
    text: 'return as === "sudo" ? sudoShell : plainShell;',
    becomes: 'return as === "root" ? sudoShell : plainShell;',
    breaks: "A login with sudo mounts nothing: no pod with a Secret starts on its node.",
    assertion: "TODO",
    foundBy: [integration("ssh-users", "has every right that a node needs", "ssh")],
  },
  {
    name: "local-link-followed",
    file: "providers/local/directory.ts",
    text: "(follow ? 0 : constants.O_NOFOLLOW)",
    becomes: "(follow ? constants.O_NOFOLLOW : 0)",
    breaks: "A container that puts a link in its volume has files of the machine removed with its pod.",
    assertion: "TODO",
    foundBy: [contract("host-local")],
  },
  {
    name: "chart-strategy",
    file: "charts/graftlet/templates/deployment.yaml",
    text: "strategy: { type: Recreate }",
    becomes: "strategy: { type: RollingUpdate }",
    breaks: "An upgrade of the release runs two graftlets on one node.",
    assertion: "TODO",
    foundBy: [contract("chart-render")],
  },
];
