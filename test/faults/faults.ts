import { aroundNodes } from "./around-nodes.ts";
import { hostile } from "./hostile.ts";
import { contract, type Fault, integration, unit } from "./fault.ts";
import {
  always,
  argument,
  become,
  call,
  condition,
  drop,
  element,
  entry,
  negate,
  never,
  operand,
  property,
  result,
  text,
  value,
} from "./mistake.ts";
import { pulls } from "./pulls.ts";
import { resourceManagers } from "./resource-managers.ts";
import { tunnel } from "./tunnel.ts";

/** Of every area and provider some. Those whose tests are all of integration are found on a real cluster alone. */
export const faults: readonly Fault[] = [
  {
    name: "manifest-change",
    in: "createManifestSet.holdingOf",
    mistake: become(condition("text"), "before"),
    breaks: "Changes of a static pod's manifest have no effect until graftlet restarts.",
    assertion:
      '"reads the manifests of a directory by name: at the start, on changes and periodically": Expected "actual" to be strictly unequal to',
    foundBy: [unit("sources/file")],
  },
  {
    name: "manifest-url-header",
    in: "createHttpSource",
    mistake: drop(entry("given")),
    breaks:
      "A manifest server that requires staticPodURLHeader rejects the node's requests, so its static pods never start.",
    assertion: '"reads one pod or a PodList, with the configured headers": Expected values to be strictly equal',
    foundBy: [unit("sources/http", "reads one pod or a PodList, with the configured headers")],
  },
  {
    name: "claim-of-another",
    in: "boundVolume",
    mistake: never(condition("uid", 2)),
    breaks: "A claim that is deleted and re-created gets the volume and the data of its predecessor.",
    assertion:
      '"fails at once, in the kubelet\'s words, if the volume is bound to another claim": Expected "actual" to be strictly unequal to',
    foundBy: [unit("volumes/claims")],
  },
  {
    name: "iscsi-last-disk",
    in: "detach",
    mistake: never(condition("needed", 1)),
    breaks: "When a pod with an iSCSI disk ends, other pods lose their disks of the same iSCSI target.",
    assertion:
      '"stays logged in while the node has another disk of the target, and removes only the kernel\'s disk of the first": Expected values to be strictly deep-equal',
    foundBy: [unit("volumes/iscsi")],
  },
  {
    name: "iscsi-record-missing",
    in: "attachIscsiDisk",
    mistake: drop(call("record")),
    breaks: "After a crash between login and mount, the machine stays logged in to the iSCSI target forever.",
    assertion:
      '"writes the kubelet\'s record of the disk before the first login": Expected values to be strictly deep-equal',
    foundBy: [unit("volumes/iscsi")],
  },
  {
    name: "growth-after-crash",
    in: "decideExpansion",
    mistake: drop(operand("||", "NodeResizeInProgress")),
    breaks: "A claim whose volume was growing when graftlet was killed never gets its new size.",
    assertion:
      '"the decision for a claim that is in NodeResizeInProgress is "expand"": Expected values to be strictly equal',
    foundBy: [unit("volumes/expansion")],
  },
  {
    name: "pod-removed",
    in: "createApiServerSource",
    mistake: drop(operand("&&", "get")),
    breaks: "A pod that is deleted by force keeps running until another pod of the node changes.",
    assertion:
      '"deletion by force: the object is removed at once, processes and directories follow": waited 60 s in vain for: the directory of the forced pod to go (last: nothing yet)',
    foundBy: [unit("sources/apiserver"), integration("pods-end", "deletion by force")],
  },
  {
    name: "daemon-set-left-out",
    in: "decideDaemonSetPod",
    mistake: always(condition("runs")),
    breaks: "kube-proxy and network plugins run on a machine that should have none, and rewrite its firewall rules.",
    assertion:
      '"a new DaemonSet pod is a placeholder unless it, or every DaemonSet, is selected": Expected values to be strictly equal',
    foundBy: [
      unit("pod/daemon-sets"),
      integration("daemonsets", "excluded DaemonSets complete their rollouts with ready placeholders"),
    ],
  },
  {
    name: "host-port-protocol",
    in: "hostPortsFree",
    mistake: negate(operand("&&", "protocol")),
    breaks: "Two pods get the same host port; a TCP server and a UDP server cannot use the same port number.",
    assertion:
      '"host ports conflict if address, protocol and port number overlap": Expected values to be strictly deep-equal',
    foundBy: [unit("admission/chain")],
  },
  {
    name: "deadline-from-now",
    in: "createPasses",
    mistake: drop(operand("??", "shown")),
    breaks: "After a restart of graftlet, a pod's activeDeadlineSeconds start again.",
    assertion:
      '"counts the deadline from the start time of the pod, or from now if it has not started": Expected values to be strictly deep-equal',
    foundBy: [unit("sync/passes-deadline")],
  },
  {
    name: "grace-period",
    in: "criContainers.stopContainer",
    mistake: become(property("timeout"), "0n"),
    breaks: "Containers are killed at once instead of after their grace period.",
    assertion:
      '"deletion: SIGTERM is handled, and the object is removed once runtime and machine are clean": ENOENT: no such file or directory, open farewell/said',
    foundBy: [integration("pods-end", "deletion: SIGTERM is handled")],
  },
  {
    name: "newest-container",
    in: "observePod",
    mistake: become(result("createdAt"), "-($)"),
    breaks: "After a restart, a pod's status shows the exited container instead of the running one.",
    assertion:
      '"restart policies: Always restarts after exit 0, OnFailure after a failure, Never not at all": waited 60 s in vain for always: a restart',
    foundBy: [integration("pods", "restart policies: Always restarts")],
  },
  {
    name: "replaced-addresses",
    in: "statusPatch",
    mistake: drop(element("$patch")),
    breaks: "A pod with a new sandbox also shows its old address, to which clients fail to connect.",
    assertion:
      '"the patch contains changed fields, and nulls for removed ones": Expected values to be strictly deep-equal',
    foundBy: [unit("status/merge")],
  },
  {
    name: "static-unready",
    in: "createVerdicts",
    mistake: drop(operand("??", "mirror")),
    breaks: "A ready static pod is not ready for a while after each restart of the agent.",
    assertion: "the mirror pod's status takes precedence over the node's own",
    foundBy: [unit("probes/probes")],
  },
  {
    name: "probe-timeout",
    in: "criContainers.execSync",
    mistake: become(property("timeout"), "0n"),
    breaks: "A hanging probe command is not a failure, so a pod that does not respond stays Ready.",
    assertion:
      '"readiness probes fail a command that exceeds its timeout": waited 60 s in vain for: an event Unhealthy Readiness probe failed: command timed out: "sleep 20" timed out after 1s of slow (last: nothing yet)',
    foundBy: [integration("probes", "readiness probes fail a command that exceeds its timeout")],
  },
  {
    name: "removed-key",
    in: "writeAtomically",
    mistake: negate(operand("&&", "..", 1)),
    breaks: "A key that is removed from a ConfigMap leaves a dangling link in the volumes of running pods.",
    assertion: '"writes nothing if nothing changed, even after a restart": Expected values to be strictly equal',
    foundBy: [unit("volumes/atomic-writer")],
  },
  {
    name: "subpath-mode",
    in: "bindSubPaths",
    mistake: drop(text(' && chmod "$mode" .')),
    breaks:
      "A directory that is created for a subPath is accessible only to root, so a container of another user cannot read it.",
    assertion:
      '"subPath mounts mount a directory, a file, a missing path, a path named by the environment, and a path of a read-only volume": Expected values to be strictly equal',
    foundBy: [integration("volumes-subpath", "subPath mounts mount a directory")],
  },
  {
    name: "subpath-again",
    in: "bindSubPaths",
    mistake: drop(text('[ ! -e "$target" ] || umount "$target" 2>/dev/null')),
    breaks: "A restarted container with a subPath sees the old version of its ConfigMap forever.",
    assertion:
      '"a restarted container sees the current content: an object\'s newer version, a file in place of a directory": waited 60 s in vain for again: to have started again',
    foundBy: [integration("volumes-subpath", "a restarted container sees the current content")],
  },
  {
    name: "host-path-parents",
    in: "hostPath",
    mistake: become(property("parents"), "false"),
    breaks: "A hostPath of type DirectoryOrCreate is not created if its parent is missing, so the pod waits forever.",
    assertion: '"hostPath: each type accepts its file kind": test timed out after 60000ms',
    foundBy: [unit("volumes/plugins")],
  },
  {
    name: "dollar-escape",
    in: "expand",
    mistake: never(condition("$")),
    breaks: "$$(NAME) in a command keeps its second dollar sign.",
    assertion: '"expands $$(A) to $(A)": Expected values to be strictly equal',
    foundBy: [unit("pod/expand")],
  },
  ...pulls,
  {
    name: "crash-loop",
    in: "createCrashLoop",
    mistake: become(value("initialDelayMs"), "1_000"),
    breaks: "A container that fails at once is restarted every second.",
    assertion:
      '"the first restart is immediate, then 10 s, 20 s, 40 s … five minutes after each exit": Expected values to be strictly deep-equal',
    foundBy: [unit("runtime/crash-loop")],
  },
  {
    name: "rotated-logs",
    in: "removeLogs",
    mistake: drop(operand("||", "startsWith")),
    breaks: "Rotated logs of containers that are gone fill the disk.",
    assertion:
      '"every minute, removes dead containers except the newest of each name, with their logs, rotated logs and links": Expected values to be strictly deep-equal',
    foundBy: [unit("gc/garbage")],
  },
  {
    name: "layer-limit",
    in: "firstExceededLimit",
    mistake: become(condition("containers"), "(usage.volumes.get(name) ?? 0) > bytes"),
    breaks: "A container can write more to its writable layer than its ephemeral-storage limit.",
    assertion:
      '"a container\'s limit covers the writable layer and logs of its latest instance": Expected values to be strictly equal',
    foundBy: [unit("eviction/manager")],
  },
  {
    name: "device-variables",
    in: "mergeDevices",
    mistake: become(property("environment"), "new Map()"),
    breaks: "Containers do not get the variables that name their devices, so NVIDIA's runtime adds no device.",
    assertion:
      '"a container gets the environment, mounts and devices that its plugin returns, and its status shows device health": Expected values to be strictly deep-equal',
    foundBy: [unit("devices/allocate")],
  },
  {
    name: "resize-pod-cgroup",
    in: "resizePod",
    mistake: negate(condition("increases", 2)),
    breaks: "A pod whose limits are lowered in place keeps its old pod-level limits.",
    assertion:
      '"raises the pod limits before those of its containers: memory, CPU limits, then shares": Expected values to be strictly deep-equal',
    foundBy: [unit("runtime/resize")],
  },
  {
    name: "cri-resize",
    in: "criContainers.updateContainerResources",
    mistake: become(argument("send", 2), "{ ...$, linux: undefined }"),
    breaks: "A resized pod shows its new limits, but the old ones stay in effect.",
    assertion:
      '"raises and lowers resources without a restart, as status, events and cgroups show": Expected values to be strictly deep-equal',
    foundBy: [integration("resize", "raises and lowers resources without a restart")],
  },
  {
    name: "proxy-may-forward",
    in: "podActionAreas",
    mistake: drop(element("portForward")),
    breaks: "A user with read access to nodes/proxy can connect to every port in every pod.",
    assertion:
      "\"checks each path's subresources in order, also for upgrades, and refuses in the kubelet's words\": GET /portForward/ns/p",
    foundBy: [unit("server/authorization")],
  },
  {
    name: "exec-exit-code",
    in: "streamExec",
    mistake: become(result("ended"), "($) === 0 ? 0 : 1"),
    breaks: "kubectl exec on a node with Docker exits with 1, whatever the command's exit code.",
    assertion:
      '"returns the command\'s exit code, and stdout separate from stderr": Expected values to be strictly deep-equal',
    foundBy: [integration("kubectl", "returns the command's exit code", "ssh-docker")],
  },
  {
    name: "forward-refused",
    in: "forwardTo",
    mistake: negate(condition("hasSentData")),
    breaks: "kubectl port-forward reports no error if nothing listens on the port.",
    assertion: '"v4: reports a failed connection on its error channel": Expected values to be strictly equal',
    foundBy: [unit("streams/port-forward-spdy"), unit("streams/port-forward-websocket")],
  },
  {
    name: "log-since",
    in: "decodeLogOptions",
    mistake: drop(operand("*", "1000")),
    breaks: "kubectl logs --since=1h shows the last seconds.",
    assertion:
      '"containerLogs: passes options to the reader, with the running or the previous container": The expression evaluated to a falsy value',
    foundBy: [unit("server/routes")],
  },
  {
    name: "late-renewal",
    in: "createCurrentPair.take",
    mistake: become(call("jitter"), "($ + 0.4)"),
    breaks: "A node's certificate is renewed only after it has expired, so the API server rejects the node.",
    assertion:
      '"approves its own valid requests if permitted, but not invalid ones": never: () => certificate.current() !== first',
    foundBy: [unit("certificates/issued")],
  },
  {
    name: "lease-holder",
    in: "createLease",
    mistake: drop(operand("/", "4")),
    breaks: "The node's Lease expires between two renewals, so the control plane marks a healthy node as unreachable.",
    assertion:
      '"creates the lease with the Node as owner, then renews it every quarter of its duration": Expected values to be strictly deep-equal',
    foundBy: [unit("node/lease")],
  },
  {
    name: "docker-host-ip",
    in: "sandboxSpec",
    mistake: become(property("HostIp"), '""'),
    breaks: "A hostPort with a hostIP is open on all addresses of a node with Docker.",
    assertion:
      '"lets pods share a host port on different addresses, including the loopback": waited 60 s in vain for on-address: to be Ready',
    foundBy: [
      unit("providers/docker/sandbox/spec"),
      integration("containers-network", "lets pods share a host port on different addresses", "docker"),
    ],
  },
  {
    name: "docker-log-file",
    in: "unlinkLog",
    mistake: drop(text("-json")),
    breaks: "Log collectors find dangling links on a node with Docker.",
    assertion:
      '"links the log path to Docker\'s file before the container starts, replacing an older link": Expected values to be strictly equal',
    foundBy: [unit("providers/docker/container/containers")],
  },
  {
    name: "ssh-dead-peer",
    in: "openConnection",
    mistake: become(value("keepaliveIntervalMs"), "35_000"),
    breaks: "A silent target counts as reachable for two minutes, so its node stays Ready.",
    assertion:
      '"the node reports a link that is dead in one direction, to agent, within 15 s, and recovers": waited 30 s in vain for: the node\'s Ready condition to be False for LinkDown (last: nothing yet)',
    foundBy: [integration("ssh-faults", "the node reports a link that is dead in one direction", "ssh")],
  },
  {
    name: "ssh-reconnect",
    in: "createLink",
    mistake: become(argument("after", 2), "() => undefined"),
    breaks: "A lost link is never restored, so its node is NotReady until graftlet restarts.",
    assertion:
      '"calls fail at once while the link is down; it retries with growing delays and reports since when and why it is down": Expected values to be strictly equal',
    foundBy: [unit("providers/ssh/connection/link")],
  },
  {
    name: "ssh-sudo",
    in: "shellCommand",
    mistake: never(condition("sudo")),
    breaks: "A login with sudo cannot mount, so no pod with a Secret starts on its node.",
    assertion:
      'set-up of "a user with sudo": waited 120 s in vain for: graftlet to make node node-1 Ready (last: nothing yet)',
    foundBy: [
      unit("providers/ssh/shell/privileges"),
      integration(
        "ssh-users",
        "a login with sudo has every privilege that a node needs: pods run, and secrets are in memory",
        "ssh",
      ),
    ],
  },
  {
    name: "ssh-hidden-files",
    in: "providers/ssh/**/prelude.sh",
    mistake: drop(text(' "$1"/.*')),
    breaks: "On a target over SSH, the volumes of running pods do not follow changes of a ConfigMap.",
    assertion: `"list returns names and kinds of a directory's entries without following links": Expected values to be strictly deep-equal`,
    foundBy: [contract("host-ssh")],
  },
  {
    name: "local-link-followed",
    in: "openDirectory",
    mistake: negate(condition("follow")),
    breaks: "A container that creates a link in its volume causes files of the machine to be removed with its pod.",
    assertion:
      '"mkdir creates nothing through a dangling link, and changes no mode of a file that replaces the directory": Expected values to be strictly equal',
    foundBy: [contract("host-local")],
  },
  ...aroundNodes,
  ...hostile,
  ...tunnel,
  ...resourceManagers,
];
