import { completionScript, shells } from "./completion.ts";
import { refuse } from "./refusal.ts";
import { graftletVersion, kubeletVersion } from "../version.ts";

/** Output of --version. Like a kubelet's, it begins with the Kubernetes version, which scripts parse. */
export function versionText(): string {
  return `Kubernetes ${kubeletVersion} (graftlet ${graftletVersion})`;
}

/** Flags of the process, independent of its nodes. */
const processHelp = `
The process
  --page-port N                       status page of the nodes, such as 4194 (default 0, none)
  --page-address IP                   its address (default 127.0.0.1); any other uses TLS and the kubelet API's authentication
  --status-socket FILE                socket for graftlet status (default: status.sock in --cert-dir; "" for none)
  -v N                                log verbosity: 0 information, 3 debugging, 5 everything
  --vmodule PATTERN=N,...             verbosity of source files by name, with --logging-format text
  --logging-format FORMAT             json (default), or text: the kubelet's format
  --version, --help

An invalid setting stops startup with a one-line error and exit code 1.
`;

/** Output of --help: the supported flags, in groups. */
export function helpText(): string {
  return `graftlet: a kubelet that grafts a machine onto a Kubernetes cluster.
It accepts the kubelet's command line. Flags of a kubelet ${kubeletVersion} that are not listed here are accepted
too; graftlet warns about each one that it does not support yet.

Usage:
  graftlet --kubeconfig FILE [--config FILE] [flags]
  graftlet --nodes FILE [--kubeconfig FILE], or --fleet NAMESPACE/NAME --kubeconfig FILE
  graftlet leave [flags]              drains and deletes nodes, and cleans their machines: graftlet leave --help
  graftlet enrol NODE [flags]         prints the script by which a machine behind NAT joins: graftlet enrol --help
  graftlet remove [flags]             cleans a node's machine: graftlet remove --help
  graftlet completion bash|zsh|fish   prints the shell's completion; graftlet help COMMAND explains a command
  graftlet doctor [flags]             checks a node's machine and cluster: graftlet doctor --help
  graftlet status [flags]             shows the nodes of a running graftlet: graftlet status --help

Configuration
  --config FILE, --config-dir DIR     KubeletConfiguration, YAML or JSON; drop-in files *.conf, merged over it in lexical order
  --feature-gates A=true,B=false      feature gates of Kubernetes 1.36
  --nodes FILE                        GraftletConfiguration (graftlet.dev/v1alpha1): several nodes in one process
  --fleet NAMESPACE/NAME              a Helm release, whose GraftedNodes this process serves together with the release's Pods

The machine
  --provider NAME                     provider of the node's machine: cri, docker or ssh (default cri)
  --provider-config FILE              the provider's own settings, YAML
  --container-runtime-endpoint URL    CRI socket (default unix:///run/containerd/containerd.sock)
  --image-service-endpoint URL        CRI socket for images, if separate
  --runtime-request-timeout DURATION  timeout of a runtime call (default 2m)
  --root-dir DIR                      the node's files on the machine (default /var/lib/kubelet)
  --cgroup-driver, --cgroup-root, --cgroups-per-qos, --fail-cgroupv1, --fail-swap-on

The API server
  --kubeconfig FILE                   API server and credentials; required outside a Pod, unless there are only static pods
  --kube-api-qps, --kube-api-burst    requests per second to the API server (default 50, 100)
  --event-qps, --event-burst          events per second (default 50, 100)

The node
  --hostname-override NAME            the node's name (default: the host name)
  --node-ip IP[,IP]                   the node's addresses
  --node-labels K=V,...               labels at registration
  --register-node                     register the node (default true)
  --register-with-taints K=V:EFFECT   taints at registration
  --provider-id ID                    the node's spec.providerID
  --daemon-sets CHOICE                DaemonSet pods to run: none, selected or all (default: depends on the node's network)
  --max-pods N, --pods-per-core N     maximum number of pods (default 110, 0 for no limit per core)
  --system-reserved, --kube-reserved  resources that pods cannot request: cpu=200m,memory=500Mi,...
  --eviction-hard SIGNAL<AMOUNT,...   thresholds below which pods are evicted
  --node-status-update-frequency, --node-status-max-images

Pods
  --pod-manifest-path PATH            static pods: a directory of manifests, or one file
  --manifest-url, --manifest-url-header  static pods from a URL, with request headers
  --file-check-frequency, --http-check-frequency
  --cluster-dns IP,...                name servers of pods
  --cluster-domain NAME               search domain of pods
  --resolv-conf FILE                  the machine's resolv.conf (default /etc/resolv.conf)
  --serialize-image-pulls             pull one image at a time (default false)
  --registry-qps, --registry-burst    image pulls per second (default 5, 10)
  --cpu-cfs-quota, --cpu-cfs-quota-period, --seccomp-default, --sync-frequency

The kubelet API
  --address IP, --port N              listen address (default 0.0.0.0, 10250)
  --healthz-bind-address, --healthz-port    health of graftlet itself (default 127.0.0.1, 10248)
  --client-ca-file FILE               CA of callers (default: the cluster's)
  --anonymous-auth                    admit anonymous callers (default false)
  --authentication-token-webhook      TokenReview for bearer tokens (default true)
  --authorization-mode MODE           Webhook (default) or AlwaysAllow
  --tls-cert-file, --tls-private-key-file, --tls-cipher-suites, --tls-min-version
  --cert-dir DIR                      certificates that graftlet creates (default /var/lib/kubelet/pki)
  --enable-server, --enable-debugging-handlers
${processHelp}`;
}

export function removeHelpText(): string {
  return `graftlet remove: removes everything that graftlet created on a node's machine, and nothing else.

Usage:
  graftlet remove --provider-config FILE --hostname-override NAME [flags that the node was started with]
  graftlet remove --nodes FILE --node NAME

Stop graftlet first. The command lists everything to be removed, one line each, and asks for confirmation: containers
and sandboxes of the node's pods, their mounts, cgroups, directories and logs, the node's Docker network, graftlet's
own files, and directories that graftlet created, if they are empty. Images stay, and so do files that pods wrote to
the machine through hostPath. The command can be repeated at any time. It needs no API server: delete the Node object
with kubectl.

  --yes                               skip the confirmation
  --node NAME                         the node of the --nodes file to remove

These flags of the node determine what is removed: --provider (ssh if the --provider-config file has a host),
--provider-config, --hostname-override, --root-dir, --config, --config-dir, --container-runtime-endpoint,
--cgroup-root, --cgroup-driver, --nodes. Other flags are accepted and have no effect.

Exit code 0 means that nothing of the node is left.
`;
}

export function doctorHelpText(): string {
  return `graftlet doctor: checks nodes' machines and their cluster, and reports problems. It changes nothing.

Usage:
  graftlet doctor --provider-config FILE [--kubeconfig FILE] [flags that the node is started with]
  graftlet doctor --nodes FILE [--node NAME] [--kubeconfig FILE]
  graftlet doctor pod MANIFEST [the same flags]

Use it before a node joins or while it runs. It prints a line for each of: the link, the login's privileges, the machine,
its swap, cgroups, runtime, disk, clock and name servers, other agents there, requirements of the pods' network. With
--kubeconfig (or in graftlet's Pod) also: the API server, the Node's conditions and Lease, and whether the API server
reaches the kubelet API and a pod's log.

In a Pod of a release with a fleet, the machines of its GraftedNodes are checked too, with the Pod's service account.

doctor pod reports which parts of a manifest (a Pod, or a Deployment, a Job and so on) the node does not support, and why.

  -o, --output text|json              text (default): ok, warning or FAILURE, with the node condition's reason and the remedy
  --node NAME                         only this node of the --nodes file, or this GraftedNode

Exit code 1 means that a check has failed; warnings do not count.
`;
}

export function statusHelpText(): string {
  return `graftlet status: shows the nodes of the graftlet that runs on this machine, or in this Pod.

Usage:
  graftlet status [--node NAME] [-o json] [--cert-dir DIR | --status-socket FILE]
  kubectl exec --namespace NAMESPACE deploy/NAME -- graftlet status

For each node: whether it is ready, and why not; its link; conditions that need attention; its pods; the newest warnings
and errors of its log. With GraftedNodes, also the release's replicas and the machines that other Pods serve. The process
answers on a unix socket that only its own user and root may use.

  -o, --output text|json              text (default), or all of it as JSON
  --node NAME                         only this node, or machine of another Pod
  --status-socket FILE                the socket (default: GRAFTLET_STATUS_SOCKET in the environment, or status.sock in --cert-dir)

The flags that the process was started with are accepted; those that do not determine the socket have no
effect. Exit code 0 means that all nodes are ready; machines of other Pods count only if --node names one.
`;
}

export function leaveHelpText(): string {
  return `graftlet leave: drains and deletes nodes, and cleans their machines.

Usage:
  graftlet leave --kubeconfig FILE --nodes FILE [--node NAME]
  graftlet leave --kubeconfig FILE --provider-config FILE --hostname-override NAME [flags that the node was started with]

The steps for each node, in this order:
  1. cordon the node (as kubectl cordon);
  2. delete its pods, with their own grace periods, and wait; except mirror pods and pods of DaemonSets;
  3. stop graftlet: scale the Deployment of --deployment to 0; without it, stop graftlet yourself when asked to;
  4. clean its machine, as graftlet remove does;
  5. delete its Node, and its remaining pods in the cluster.

In a Pod of a release with a fleet, its GraftedNodes are deleted first, and the running graftlet removes their machines
from the cluster.

A node that fails is named and stays; the others continue. The command can be repeated after any step. Files that pods
wrote to the machine through hostPath stay, and so do images.

  --kubeconfig FILE                   an administrator's, not the node's own; not needed in a Pod with a service account
  --node NAME                         only this node of the --nodes file
  --deployment [NAMESPACE/]NAME       the Deployment that runs graftlet
  --timeout DURATION                  time limit for the pods to end, and then for graftlet (default 5m)
  --yes                               skip the confirmation

Exit code 0 means that all of these nodes have left.
`;
}

/** Output of `graftlet enrol --help`. */
export function enrolHelpText(): string {
  return `graftlet enrol: prints the script by which a machine behind NAT becomes the machine of a GraftedNode.

Usage, in graftlet's Pod:
  graftlet enrol NODE --address HOST[:PORT] [flags]

The script runs on the machine, as root. It creates a key, sends it and the machine's host key to graftlet's listener with a
one-time token, authorizes graftlet's login, and starts the reverse tunnel as a unit of systemd. The GraftedNode needs
spec.ssh.reverse without authorizedKeys. Graftlet serves it once you have approved the machine's host key:

  kubectl annotate gn NODE graftlet.dev/approve-host-key=SHA256:...

  --address HOST[:PORT]               where machines reach the Service of the listener
  --valid-for DURATION                lifetime of the token (default 1h, at most 168h)
  --approved                          the token alone is enough: nobody has to approve the machine

Another call replaces a token that has not been used.
`;
}

/** Help texts of graftlet itself and of its commands. */
const helps: Readonly<Record<string, () => string>> = {
  "": helpText,
  leave: leaveHelpText,
  enrol: enrolHelpText,
  remove: removeHelpText,
  doctor: doctorHelpText,
  status: statusHelpText,
};

/** Text of `graftlet help` and `graftlet completion`. */
export function textFor(command: "help" | "completion", word: string | undefined): string {
  if (command === "help") {
    const text = helps[word ?? ""];
    if (text) return text();
    throw refuse("help", word, `use one of ${Object.keys(helps).filter(Boolean).join(", ")}, or none`);
  }
  const shell = shells.find((each) => each === word);
  if (shell) return completionScript(shell);
  throw refuse("completion", word, `use one of ${shells.join(", ")}`);
}
