import { graftletVersion, kubeletVersion } from "../version.ts";

/** The line of --version: first the Kubernetes version, as scripts read it off a kubelet. */
export function versionText(): string {
  return `Kubernetes ${kubeletVersion} (graftlet ${graftletVersion})`;
}

/** The page of --help: what graftlet serves, in groups. */
export function helpText(): string {
  return `graftlet: a kubelet that grafts a machine onto a Kubernetes cluster.
It takes the kubelet's place in the kubelet's own command line. Flags of a kubelet ${kubeletVersion} that are
not listed here are known too: each is named in a warning if graftlet does not heed it yet.

Usage:
  graftlet --kubeconfig FILE [--config FILE] [flags]
  graftlet --nodes FILE [--kubeconfig FILE]
  graftlet leave [flags]              takes nodes out of the cluster in good order: graftlet leave --help
  graftlet remove [flags]             takes what a node put on its machine away again: graftlet remove --help

Configuration
  --config FILE                       KubeletConfiguration (kubelet.config.k8s.io/v1beta1), YAML or JSON
  --config-dir DIR                    drop-in files *.conf, merged over --config in lexical order
  --feature-gates A=true,B=false      feature gates of Kubernetes 1.36
  --nodes FILE                        GraftletConfiguration (graftlet.dev/v1alpha1): several nodes in one process

The machine
  --provider NAME                     what gives the node its machine (default cri)
  --provider-config FILE              the provider's own settings, YAML
  --container-runtime-endpoint URL    CRI socket (default unix:///run/containerd/containerd.sock)
  --image-service-endpoint URL        CRI socket for images, if another
  --runtime-request-timeout DURATION  deadline of a runtime call (default 2m)
  --root-dir DIR                      the node's files on the machine (default /var/lib/kubelet)
  --cgroup-driver, --cgroup-root, --cgroups-per-qos, --fail-cgroupv1, --fail-swap-on

The API server
  --kubeconfig FILE                   API server and credentials; needed outside a Pod, but for static pods alone
  --kube-api-qps, --kube-api-burst    requests a second to the API server (default 50, 100)
  --event-qps, --event-burst          events a second (default 50, 100)

The node
  --hostname-override NAME            the node's name (default: the host name)
  --node-ip IP[,IP]                   the node's addresses
  --node-labels K=V,...               labels to register with
  --register-node                     register the node (default true)
  --register-with-taints K=V:EFFECT   taints to register with
  --provider-id ID                    the node's spec.providerID
  --max-pods N, --pods-per-core N     how many pods the node takes (default 110, 0 for no limit by core)
  --system-reserved, --kube-reserved  resources that pods cannot request: cpu=200m,memory=500Mi,...
  --eviction-hard SIGNAL<AMOUNT,...   thresholds of the pressure conditions
  --node-status-update-frequency, --node-status-max-images

Pods
  --pod-manifest-path PATH            static pods: a folder of manifests, or one file
  --manifest-url, --manifest-url-header  static pods of a URL, asked for with headers
  --file-check-frequency, --http-check-frequency
  --cluster-dns IP,...                name servers of pods
  --cluster-domain NAME               search domain of pods
  --resolv-conf FILE                  the machine's resolv.conf (default /etc/resolv.conf)
  --serialize-image-pulls             pull one image at a time (default false)
  --registry-qps, --registry-burst    image pulls a second (default 5, 10)
  --cpu-cfs-quota, --cpu-cfs-quota-period, --seccomp-default, --sync-frequency

The kubelet API
  --address IP, --port N              where it is served (default 0.0.0.0, 10250)
  --healthz-bind-address, --healthz-port    health of graftlet itself (default 127.0.0.1, 10248)
  --client-ca-file FILE               CA of callers (default: the cluster's)
  --anonymous-auth                    let callers in without a name (default false)
  --authentication-token-webhook      TokenReview for bearer tokens (default true)
  --authorization-mode MODE           Webhook (default) or AlwaysAllow
  --tls-cert-file, --tls-private-key-file, --tls-cipher-suites, --tls-min-version
  --cert-dir DIR                      certificates graftlet makes (default /var/lib/kubelet/pki)
  --enable-server, --enable-debugging-handlers

  -v N                                log verbosity: 0 information, 3 debugging, 5 all
  --logging-format FORMAT             json (default), or text: the kubelet's lines
  --version, --help

A setting that graftlet cannot run with ends the start with one sentence and exit code 1.
`;
}

/** The page of remove --help. */
export function removeHelpText(): string {
  return `graftlet remove: removes all that graftlet put on a node's machine, and nothing else.

Usage:
  graftlet remove --provider-config FILE --hostname-override NAME [flags that the node was started with]
  graftlet remove --nodes FILE --node NAME

Stop graftlet first. What would go is listed, a line each, and goes once you have said yes: containers and sandboxes
of the node's pods, their mounts, cgroups, directories and logs, a Docker network of the node's, graftlet's own files,
and directories that graftlet made, if they are empty. Images stay, and so does what pods wrote to the machine by
hostPath. It can be run again at any time. It needs no API server: the Node object is deleted with kubectl.

  --yes                               without asking
  --node NAME                         which node of the file of --nodes

Of the node's own flags these say what is removed: --provider (ssh where the file of --provider-config has a host),
--provider-config, --hostname-override, --root-dir, --config, --config-dir, --container-runtime-endpoint,
--cgroup-root, --cgroup-driver, --nodes. The others are taken and change nothing.

Exit code 0 says that nothing of the node is left.
`;
}

/** The page of leave --help. */
export function leaveHelpText(): string {
  return `graftlet leave: takes nodes out of the cluster in good order, and leaves their machines as they were.

Usage:
  graftlet leave --kubeconfig FILE --nodes FILE [--node NAME]
  graftlet leave --kubeconfig FILE --provider-config FILE --hostname-override NAME [flags that the node was started with]

Of each node, in this order:
  1. no new pods are scheduled to it (kubectl cordon);
  2. its pods are deleted, with their own grace periods, and waited for; mirror pods and those of DaemonSets are not;
  3. graftlet is ended: the Deployment of --deployment is scaled to 0; without it stop graftlet when you are asked to;
  4. what is left on its machine is removed, as graftlet remove does it;
  5. its Node is deleted, and what is left of its pods in the cluster.

A node that fails is named and stays; the others go on. It can be run again after an end at any step. What pods wrote
to the machine by hostPath stays, and so do images.

  --kubeconfig FILE                   an administrator's, not the node's own; not needed in a Pod with a service account
  --node NAME                         only this node of the file of --nodes
  --deployment [NAMESPACE/]NAME       what graftlet runs in
  --timeout DURATION                  how long pods may take to end, and then graftlet (default 5m)
  --yes                               without asking

Exit code 0 says that all of these nodes have left.
`;
}
