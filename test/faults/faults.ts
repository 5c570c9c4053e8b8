import { aroundNodes } from "./around-nodes.ts";
import { cpus } from "./cpus.ts";
import { hostile } from "./hostile.ts";
import { contract, type Fault, integration, unit } from "./fault.ts";
import { pulls } from "./pulls.ts";
import { tunnel } from "./tunnel.ts";

/** Of every area and provider some. Those whose tests are all of integration are found on a real cluster alone. */
export const faults: readonly Fault[] = [
  {
    name: "manifest-change",
    file: "src/**/manifest-set.ts",
    text: "return before?.text === file.text ? before",
    becomes: "return before ? before",
    breaks: "A static pod's manifest that is edited changes nothing until graftlet is started again.",
    assertion:
      '"a folders manifests are read by name, at the start, on a change and every period": Expected "actual" to be strictly unequal to',
    foundBy: [unit("sources/file")],
  },
  {
    name: "manifest-url-header",
    file: "src/**/sources/http.ts",
    text: "headers: { ...basic(url), ...given }",
    becomes: "headers: { ...basic(url) }",
    breaks: "A server of manifests that asks for staticPodURLHeader refuses the node: its static pods never start.",
    assertion: '"reads one pod or a PodList, with the configured headers": Expected values to be strictly equal',
    foundBy: [unit("sources/http", "reads one pod or a PodList, with the configured headers")],
  },
  {
    name: "claim-of-another",
    file: "src/volumes/persistent/resolve-claim.ts",
    text: "if (reference.uid !== metadata.uid)",
    becomes: "if (reference.uid === undefined)",
    breaks: "A claim that is deleted and made anew gets the volume, with the data, of its predecessor.",
    assertion:
      '"fails at once, in the kubelet\'s words, if the volume is bound to another claim": Expected "actual" to be strictly unequal to',
    foundBy: [unit("volumes/claims")],
  },
  {
    name: "growth-after-crash",
    file: "src/volumes/persistent/expansion.ts",
    text: 'state === "NodeResizePending" || state === "NodeResizeInProgress" ?',
    becomes: 'state === "NodeResizePending" ?',
    breaks: "A claim whose volume was growing when graftlet was killed never gets its new size.",
    assertion: '"a claim that is in NodeResizeInProgress: expand": Expected values to be strictly equal',
    foundBy: [unit("volumes/expansion")],
  },
  {
    name: "pod-removed",
    file: "src/**/sources/apiserver.ts",
    text: 'type === "deleted" && reflector.get(pod.metadata.namespace, pod.metadata.name) ? undefined : push()',
    becomes: 'type === "deleted" ? undefined : push()',
    breaks: "A pod that is deleted by force runs on until another pod of the node changes.",
    assertion:
      '"deletion by force: the object goes at once, processes and directories follow": waited 60 s in vain for: the directory of the forced pod to go (last: nothing yet)',
    foundBy: [unit("sources/apiserver"), integration("pods-end", "deletion by force")],
  },
  {
    name: "daemon-set-left-out",
    file: "src/pod/daemon-sets.ts",
    text: 'return { kind: runs ? "pod" : "placeholder", isFinal: true };',
    becomes: 'return { kind: "pod", isFinal: true };',
    breaks: "kube-proxy and network plugins run on a machine that should have none, and rewrite its firewall rules.",
    assertion:
      '"a new DaemonSet pod is a placeholder unless it is selected, or all are": Expected values to be strictly equal',
    foundBy: [unit("pod/daemon-sets"), integration("daemonsets", "complete their rollouts with ready placeholders")],
  },
  {
    name: "host-port-protocol",
    file: "src/admission/predicates.ts",
    text: "return sameAddress && a.port === b.port && a.protocol === b.protocol;",
    becomes: "return sameAddress && a.port === b.port && a.protocol !== b.protocol;",
    breaks: "Two pods get one host port; a server of UDP and one of TCP cannot share a port's number.",
    assertion: '"host ports conflict by address, protocol and number": Expected values to be strictly deep-equal',
    foundBy: [unit("admission/chain")],
  },
  {
    name: "deadline-from-now",
    file: "src/sync/passes.ts",
    text: "status.get(metadata.uid) ?? shown ?? {}",
    becomes: "status.get(metadata.uid) ?? {}",
    breaks: "After a restart of graftlet a pod's activeDeadlineSeconds begin anew.",
    assertion:
      '"counts the deadline from the start time of the pod, or from now if it has not started": Expected values to be strictly deep-equal',
    foundBy: [unit("sync/passes-deadline")],
  },
  {
    name: "grace-period",
    file: "providers/cri/pods.ts",
    text: "{ containerId, timeout: wholeSeconds(graceSeconds) }",
    becomes: "{ containerId, timeout: 0n }",
    breaks: "Containers are killed at once in place of having their grace period.",
    assertion:
      '"deletion: SIGTERM is handled, and the object goes when runtime and machine are clean": ENOENT: no such file or directory, open farewell/said',
    foundBy: [integration("pods-end", "deletion: SIGTERM is handled")],
  },
  {
    name: "newest-container",
    file: "src/pleg/observe.ts",
    text: "a.createdAt < b.createdAt ? 1 : -1",
    becomes: "a.createdAt < b.createdAt ? -1 : 1",
    breaks: "After a restart a pod's status shows the container that ended, not the one that runs.",
    assertion:
      '"restart policies: Always restarts after exit 0, OnFailure after a failure, Never not at all": waited 60 s in vain for always: a restart',
    foundBy: [integration("pods", "restart policies: Always restarts")],
  },
  {
    name: "replaced-addresses",
    file: "src/status/patch.ts",
    text: '[{ $patch: "replace" }, ...list]',
    becomes: "list",
    breaks: "A pod that got a new sandbox shows its old address beside the new one: clients connect to nobody.",
    assertion: '"the patch has changed fields, and nulls for removed ones": Expected values to be strictly deep-equal',
    foundBy: [unit("status/merge")],
  },
  {
    name: "static-unready",
    file: "src/probes/verdicts.ts",
    text: "reportedStatus(mirror?.status, name, containerId) ?? reportedStatus",
    becomes: "reportedStatus",
    breaks: "A static pod that was ready is not, for a while, after each restart of the agent.",
    assertion: "the mirror pod's status takes precedence over the node's own",
    foundBy: [unit("probes/probes")],
  },
  {
    name: "probe-timeout",
    file: "providers/cri/pods.ts",
    text: "cmd: [...argv], timeout: wholeSeconds(timeoutSeconds)",
    becomes: "cmd: [...argv], timeout: 0n",
    breaks: "A probe's command that hangs is no failure: a pod that answers nobody stays Ready.",
    assertion:
      '"fail a command that exceeds its timeout": waited 60 s in vain for: an event Unhealthy Readiness probe failed: command timed out: "sleep 20" timed out after 1s of slow (last: nothing yet)',
    foundBy: [integration("probes", "fail a command that exceeds its timeout")],
  },
  {
    name: "removed-key",
    file: "src/volumes/atomic-writer.ts",
    text: '!name.startsWith("..") && !wanted.has(name)',
    becomes: 'name.startsWith("..") && !wanted.has(name)',
    breaks: "A key that is removed from a ConfigMap leaves a dangling link in the volumes of running pods.",
    assertion:
      '"nothing is written when nothing differs, also by a writer that starts anew": Expected values to be strictly equal',
    foundBy: [unit("volumes/atomic-writer")],
  },
  {
    name: "subpath-mode",
    file: "src/host/bind-subpath.ts",
    text: '&& inside && chmod "$mode" . ||',
    becomes: "&& inside ||",
    breaks: "A directory that is made for a subPath is root's alone: a container of another user cannot read it.",
    assertion:
      '"mount a directory, a file, a missing one, one named by the environment, and one of a read-only volume": Expected values to be strictly equal',
    foundBy: [integration("volumes-subpath", "mount a directory")],
  },
  {
    name: "subpath-again",
    file: "src/host/bind-subpath.ts",
    text: '  [ ! -e "$target" ] || umount "$target" 2>/dev/null\n',
    becomes: "",
    breaks: "A container with a subPath that starts again sees the old version of its ConfigMap for ever.",
    assertion:
      '"a container that starts again sees what the part is then: an objects newer version, a file in a directorys place": waited 60 s in vain for again: to have started again',
    foundBy: [integration("volumes-subpath", "a restarted container sees the current content")],
  },
  {
    name: "host-path-parents",
    file: "src/volumes/plugins/host-path.ts",
    text: "mode: 0o755, parents: true }",
    becomes: "mode: 0o755, parents: false }",
    breaks: "A hostPath of type DirectoryOrCreate is not made where its parent is missing: the pod waits for ever.",
    assertion: '"hostPath: each type takes what it names": test timed out after 60000ms',
    foundBy: [unit("volumes/plugins")],
  },
  {
    name: "dollar-escape",
    file: "src/pod/expand.ts",
    text: 'text[at + 1] === "$" ? at + 1 : at;',
    becomes: "at;",
    breaks: "$$(NAME) in a command comes out with its second dollar sign.",
    assertion: '"$$(A) → $(A)": Expected values to be strictly equal',
    foundBy: [unit("pod/expand")],
  },
  ...pulls,
  {
    name: "crash-loop",
    file: "src/runtime/crash-loop.ts",
    text: "const initialDelayMs = 10_000;",
    becomes: "const initialDelayMs = 1_000;",
    breaks: "A container that fails at once is started again every second.",
    assertion:
      '"the first restart is immediate, then 10 s, 20 s, 40 s … five minutes after each exit": Expected values to be strictly deep-equal',
    foundBy: [unit("runtime/crash-loop")],
  },
  {
    name: "rotated-logs",
    file: "src/host/container-logs.ts",
    text: "name === file || name.startsWith(`${file}.`)",
    becomes: "name === file",
    breaks: "Rotated logs of containers that are gone fill the disk.",
    assertion:
      '"every minute removes dead containers except the newest of a name, with logs, rotated logs and links": Expected values to be strictly deep-equal',
    foundBy: [unit("gc/garbage")],
  },
  {
    name: "layer-limit",
    file: "src/eviction/storage-limits.ts",
    text: "if ((usage.containers.get(name) ?? 0) > bytes)",
    becomes: "if ((usage.volumes.get(name) ?? 0) > bytes)",
    breaks: "A container may write more into its layer than its limit of ephemeral-storage.",
    assertion:
      '"a containers limit covers the writable layer and logs of its latest instance": Expected values to be strictly equal',
    foundBy: [unit("eviction/manager")],
  },
  {
    name: "device-variables",
    file: "src/devices/allocator.ts",
    text: "environment: new Map(pairs(({ envs }) => envs)),",
    becomes: "environment: new Map(pairs(({ annotations }) => annotations)),",
    breaks: "Containers do not get the variables that name their devices: NVIDIA's runtime gives them none.",
    assertion:
      '"a container gets the environment, mounts and devices of its plugin, and reports device health": Expected values to be strictly deep-equal',
    foundBy: [unit("devices/allocate")],
  },
  {
    name: "resize-pod-cgroup",
    file: "src/runtime/actuate-resources.ts",
    text: "[...limits].reverse()) if (!increases)",
    becomes: "[...limits].reverse()) if (increases)",
    breaks: "A pod whose limits are lowered in place keeps the old ones as a whole.",
    assertion:
      '"raises the pod limits before those of its containers: memory, CPU limits, then shares": Expected values to be strictly deep-equal',
    foundBy: [unit("runtime/resize")],
  },
  {
    name: "cri-resize",
    file: "providers/cri/pods.ts",
    text: "runtimeService.updateContainerResources, request, signal",
    becomes: "runtimeService.updateContainerResources, { ...request, linux: undefined }, signal",
    breaks: "A pod that is resized shows its new limits and keeps the old ones.",
    assertion:
      '"raises and lowers resources without a restart; status, events and cgroups show it": Expected values to be strictly deep-equal',
    foundBy: [integration("resize", "raises and lowers resources without a restart")],
  },
  {
    name: "proxy-may-forward",
    file: "src/server/routes.ts",
    text: 'new Set(["run", "exec", "attach", "portForward"])',
    becomes: 'new Set(["run", "exec", "attach"])',
    breaks: "Whoever may read nodes/proxy can connect to every port in every pod.",
    assertion:
      '"every path asks for its subresources in order, upgrades too, and is refused in the kubelets words": GET /portForward/ns/p',
    foundBy: [unit("server/authorization")],
  },
  {
    name: "exec-exit-code",
    file: "providers/docker/streams.ts",
    text: "return await running.ended(gone);",
    becomes: "return (await running.ended(gone)) === 0 ? 0 : 1;",
    breaks: "kubectl exec on a node with Docker ends with 1, whatever code the command failed with.",
    assertion:
      '"gives the commands exit code, and its output apart from its errors": Expected values to be strictly deep-equal',
    foundBy: [integration("kubectl", "returns the command's exit code", "docker")],
  },
  {
    name: "forward-refused",
    file: "src/streams/port-forward.ts",
    text: "return hasSentData || signal.aborted ?",
    becomes: "return !hasSentData || signal.aborted ?",
    breaks: "kubectl port-forward says nothing where nobody listens on the port.",
    assertion: '"v4: reports a failed connection on its error channel": Expected values to be strictly equal',
    foundBy: [unit("streams/port-forward-spdy"), unit("streams/port-forward-websocket")],
  },
  {
    name: "log-since",
    file: "src/server/routes/logs.ts",
    text: "now - sinceSeconds * 1000",
    becomes: "now - sinceSeconds",
    breaks: "kubectl logs --since=1h shows the last seconds.",
    assertion:
      '"containerLogs: passes options to the reader, with the running or the previous container": The expression evaluated to a falsy value',
    foundBy: [unit("server/routes")],
  },
  {
    name: "late-renewal",
    file: "src/certificates/issued.ts",
    text: "(span.until - span.from) * clock.jitter(0.7, 0.9)",
    becomes: "(span.until - span.from) * clock.jitter(1.1, 1.2)",
    breaks: "A node's certificate is renewed once it has expired: the API server knows the node no more.",
    assertion:
      '"approves its own requests if permitted, and leaves invalid ones": never: () => certificate.current() !== first',
    foundBy: [unit("certificates/issued")],
  },
  {
    name: "lease-holder",
    file: "src/node/lease.ts",
    text: "(durationSeconds * 1000) / 4;",
    becomes: "durationSeconds * 1000;",
    breaks: "The node's lease runs out between two renewals: the control plane takes a healthy node for lost.",
    assertion:
      '"creates the lease with the Node as owner, then renews it every quarter of its duration": Expected values to be strictly deep-equal',
    foundBy: [unit("node/lease")],
  },
  {
    name: "docker-host-ip",
    file: "providers/docker/sandbox/spec.ts",
    text: "HostIp: port.hostIp, HostPort",
    becomes: 'HostIp: "", HostPort',
    breaks: "A hostPort with a hostIP is open to everybody on a node with Docker.",
    assertion:
      '"lets pods share a host port on different addresses, one of them the loopback": waited 60 s in vain for on-address: to be Ready',
    foundBy: [
      unit("providers/docker/sandbox/spec"),
      integration("containers-network", "lets pods share a host port on different addresses", "docker"),
    ],
  },
  {
    name: "docker-log-file",
    file: "providers/docker/**/log-link.ts",
    text: "return `${id}-json.log`;",
    becomes: "return `${id}.log`;",
    breaks: "Log collectors find dangling links on a node with Docker.",
    assertion:
      '"the logs path leads to Dockers file before the container starts, also over an older link": Expected values to be strictly equal',
    foundBy: [unit("providers/docker/container/containers")],
  },
  {
    name: "ssh-dead-peer",
    file: "providers/ssh/**/connection.ts",
    text: "const keepaliveIntervalMs = 3500;",
    becomes: "const keepaliveIntervalMs = 35_000;",
    breaks: "A target that has gone silent counts as reachable for two minutes: its node stays Ready.",
    assertion:
      '"with a link dead in one direction, to agent, the node reports it within 15 s, and recovers": waited 30 s in vain for: the nodes Ready condition to be False for LinkDown (last: nothing yet)',
    foundBy: [integration("ssh-faults", "with a link dead in one direction", "ssh")],
  },
  {
    name: "ssh-reconnect",
    file: "providers/ssh/**/link.ts",
    text: "this.#clock.after(delay, () => void this.#connect().catch(() => undefined));",
    becomes: "this.#clock.after(delay, () => undefined);",
    breaks: "A link that was lost is never made again: its node is NotReady until graftlet is started anew.",
    assertion:
      '"calls fail at once while the link is down; it retries with growing delays and reports since when and why it is down": Expected values to be strictly equal',
    foundBy: [unit("providers/ssh/connection/link")],
  },
  {
    name: "ssh-sudo",
    file: "providers/ssh/**/privileges.ts",
    text: 'return runAs === "sudo" ? sudoShell : plainShell;',
    becomes: 'return runAs === "root" ? sudoShell : plainShell;',
    breaks: "A login with sudo mounts nothing: no pod with a Secret starts on its node.",
    assertion:
      'set-up of "a user with sudo": waited 120 s in vain for: graftlet to make node node-1 Ready (last: nothing yet)',
    foundBy: [
      unit("providers/ssh/shell/privileges"),
      integration("ssh-users", "has every privilege that a node needs", "ssh"),
    ],
  },
  {
    name: "ssh-hidden-files",
    file: "providers/ssh/**/prelude.sh",
    text: 'in "$1"/* "$1"/.*; do',
    becomes: 'in "$1"/*; do',
    breaks: "On a target over SSH a ConfigMap that changes stays as it was in the volumes of running pods.",
    assertion: `"list returns names and kinds of a directory's entries; links are links": Expected values to be strictly deep-equal`,
    foundBy: [contract("host-ssh")],
  },
  {
    name: "local-link-followed",
    file: "providers/local/directory.ts",
    text: "(follow ? 0 : constants.O_NOFOLLOW)",
    becomes: "(follow ? constants.O_NOFOLLOW : 0)",
    breaks: "A container that puts a link in its volume has files of the machine removed with its pod.",
    assertion:
      '"mkdir creates nothing through a dangling link, and changes no mode of what replaces the directory": Expected values to be strictly equal',
    foundBy: [contract("host-local")],
  },
  ...aroundNodes,
  ...hostile,
  ...tunnel,
  ...cpus,
];
