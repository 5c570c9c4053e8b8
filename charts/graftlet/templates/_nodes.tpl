{{/* Converts `nodes` of the values to `nodes` of graftlet's configuration. */}}

{{/* The machines in `nodes` of the values, as JSON: a list in its own order, or a map in the order of its keys, without null entries.
     Each has its `name`, and in `at` its path in the values, for messages. */}}
{{- define "graftlet.nodes" -}}
{{- $nodes := list -}}
{{- if kindIs "map" .Values.nodes -}}
{{- range $name, $node := .Values.nodes -}}
{{- if not (kindIs "invalid" $node) }}{{ $nodes = append $nodes (set (set (omit $node "name") "name" $name) "at" (include "graftlet.keyPath" $name)) }}{{ end -}}
{{- end -}}
{{- else -}}
{{- range $index, $node := .Values.nodes }}{{ $nodes = append $nodes (set (omit $node "at") "at" (printf "nodes[%d]" $index)) }}{{ end -}}
{{- end -}}
{{- toJson $nodes -}}
{{- end -}}

{{/* The path of an entry of nodes. Dots in its key are escaped as in --set. */}}
{{- define "graftlet.keyPath" -}}
nodes.{{ . | replace "." "\\." }}
{{- end -}}

{{/* The provider of a node of the values. */}}
{{- define "graftlet.provider" -}}
{{- .provider | default (ternary "ssh" (ternary "docker" "cri" (hasKey . "docker")) (hasKey . "ssh")) -}}
{{- end -}}

{{/* Port of the health endpoint. On the network of the Pod's machine, the machine's own kubelet uses the default ports. */}}
{{- define "graftlet.healthPort" -}}
{{ ternary 10348 10248 (not (empty (include "graftlet.local" .))) }}
{{- end -}}

{{/* Address of the health endpoint: in a Pod network it must answer the machine's probes; on the machine's network it must not be
     reachable from outside. */}}
{{- define "graftlet.healthAddress" -}}
{{ ternary "127.0.0.1" "0.0.0.0" (not (empty (include "graftlet.local" .))) }}
{{- end -}}

{{/* The ports of the nodes' kubelet APIs in the order of the nodes, as JSON: a node's own `port`, otherwise the next free one from 10250
     (or 10350). */}}
{{- define "graftlet.ports" -}}
{{- $first := include "graftlet.healthPort" . | int | add 2 -}}
{{- $nodes := include "graftlet.nodes" . | fromJsonArray -}}
{{- $named := list -}}
{{- range $nodes }}{{ with .port }}{{ $named = append $named (int .) }}{{ end }}{{ end -}}
{{- $free := list -}}
{{- range $offset := until (add (len $nodes) (len $named) | int) -}}
{{- $port := add $first $offset | int -}}
{{- if not (has $port $named) }}{{ $free = append $free $port }}{{ end -}}
{{- end -}}
{{- $ports := list -}}
{{- range $nodes -}}
{{- if .port -}}
{{- $ports = append $ports (int .port) -}}
{{- else -}}
{{- $ports = append $ports (first $free) -}}
{{- $free = rest $free -}}
{{- end -}}
{{- end -}}
{{- toJson $ports -}}
{{- end -}}

{{/* The Secrets of nodes' logins, at their machines and jump hosts, as JSON: {name, secret, directory} for each, with `directory` in the
     Pod. */}}
{{- define "graftlet.loginSecrets" -}}
{{- $secrets := list -}}
{{- range $index, $node := include "graftlet.nodes" . | fromJsonArray -}}
{{- $ssh := .ssh | default dict -}}
{{- with include "graftlet.loginSecret" (list $ $node) -}}
{{- $secrets = append $secrets (dict "name" (printf "ssh-%d" $index) "secret" . "directory" (include "graftlet.secretDirectory" $node.name)) -}}
{{- end -}}
{{- range $hop, $door := $ssh.proxyJump -}}
{{- if $door.existingSecret -}}
{{- $secrets = append $secrets (dict "name" (printf "ssh-%d-hop-%d" $index $hop) "secret" $door.existingSecret "directory" (include "graftlet.secretDirectory" (include "graftlet.hopName" (list $node.name $hop)))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if include "graftlet.reversed" . -}}
{{- $secrets = append $secrets (dict "name" "listener" "secret" .Values.reverse.existingSecret "directory" (include "graftlet.listenerDirectory" .)) -}}
{{- end -}}
{{- toJson $secrets -}}
{{- end -}}

{{/* Name of the Secret of a node's login: an existing one, or the chart's own for a key in the values. Takes (list ROOT NODE). */}}
{{- define "graftlet.loginSecret" -}}
{{- $ssh := (index . 1).ssh | default dict -}}
{{- $ssh.existingSecret | default (ternary (printf "%s-login-%s" (include "graftlet.fullname" (index . 0)) (index . 1).name) "" (not (empty $ssh.privateKey))) -}}
{{- end -}}

{{/* "true" if a machine of `nodes` opens a reverse tunnel. */}}
{{- define "graftlet.reversedNodes" -}}
{{- range include "graftlet.nodes" . | fromJsonArray }}{{ if dig "ssh" "reverse" false . }}true{{ break }}{{ end }}{{ end -}}
{{- end -}}

{{/* "true" if graftlet has a listener for reverse tunnels, of machines in `nodes` or of GraftedNodes. */}}
{{- define "graftlet.reversed" -}}
{{- if or (include "graftlet.reversedNodes" .) (and .Values.fleet.enabled .Values.reverse.existingSecret) }}true{{ end -}}
{{- end -}}

{{/* Path of the listener's key in the Pod. */}}
{{- define "graftlet.listenerKey" -}}
{{ include "graftlet.listenerDirectory" . }}/ssh-privatekey
{{- end -}}

{{/* Directory of the listener's key in the Pod. No node can have its name. */}}
{{- define "graftlet.listenerDirectory" -}}
{{ include "graftlet.secretDirectory" "_listener" }}
{{- end -}}

{{/* Labels by which the listener's Service selects its Pod: the release's, or the one that drains it. */}}
{{- define "graftlet.listenerLabels" -}}
graftlet.dev/listener: {{ include "graftlet.fullname" . }}
{{- end -}}

{{/* Name for a jump host of a node, which no node can have. Takes (list NODE-NAME INDEX). */}}
{{- define "graftlet.hopName" -}}
{{ printf "%s_%d" (index . 0) (index . 1) }}
{{- end -}}

{{/* Directory of a Secret in the Pod. Takes the name of a node or jump host. */}}
{{- define "graftlet.secretDirectory" -}}
/etc/graftlet/nodes/{{ . }}
{{- end -}}

{{/* The machine's name or address. For a machine with a reverse tunnel, it is only the name in known_hosts. Takes a node. */}}
{{- define "graftlet.sshHost" -}}
{{ dig "ssh" "host" "" . | default (ternary .name "" (dig "ssh" "reverse" false .)) }}
{{- end -}}

{{/* The ssh provider's configuration, as JSON, from the values and the files of the Secrets. Takes (list ROOT NODE). */}}
{{- define "graftlet.sshConfig" -}}
{{- $root := index . 0 -}}
{{- $name := (index . 1).name -}}
{{- $ssh := (index . 1).ssh | default dict -}}
{{- $config := include "graftlet.sshDoor" (list $ssh $name) | fromJson -}}
{{- if and $ssh.existingSecret (contains "@" ($ssh.proxy | default "")) (not $ssh.proxyPasswordFile) }}{{ $_ := set $config "proxyPasswordFile" (printf "%s/proxy-password" (include "graftlet.secretDirectory" $name)) }}{{ end -}}
{{- if $ssh.reverse -}}
{{- $_ := set $config "host" (include "graftlet.sshHost" (index . 1)) -}}
{{- $_ := set $config "reverse" (dict "port" (int $root.Values.reverse.port) "hostKeyFile" (include "graftlet.listenerKey" $root) "authorizedKeysFile" (printf "%s/authorized_keys" (include "graftlet.secretDirectory" $name))) -}}
{{- end -}}
{{- if $ssh.proxyJump -}}
{{- $hops := list -}}
{{- range $hop, $door := $ssh.proxyJump }}{{ $hops = append $hops (include "graftlet.sshDoor" (list $door (include "graftlet.hopName" (list $name $hop))) | fromJson) }}{{ end -}}
{{- $_ := set $config "proxyJump" $hops -}}
{{- end -}}
{{- toJson $config -}}
{{- end -}}

{{/* The installed release's nodes from its ConfigMap, as JSON; empty if the chart is rendered without the cluster. */}}
{{- define "graftlet.standing" -}}
{{- $map := lookup "v1" "ConfigMap" (include "graftlet.namespace" .) (include "graftlet.fullname" .) | default dict -}}
{{- (dig "data" "nodes.yaml" "" $map | fromYaml).nodes | default list | toJson -}}
{{- end -}}

{{/* The pod networks of nodes over SSH by node name, as JSON. With "auto" the machine decides. An installed node whose network was not
     "auto" stays isolated: an upgrade opens no new path for the node or the account. */}}
{{- define "graftlet.networks" -}}
{{- $old := dict -}}
{{- range include "graftlet.standing" . | fromJsonArray -}}
{{- $config := .providerConfig | default dict -}}
{{- if ne ($config.network | default "isolated") "auto" }}{{ $_ := set $old .name ($config.host | default "") }}{{ end -}}
{{- end -}}
{{- $networks := dict -}}
{{- range include "graftlet.nodes" . | fromJsonArray -}}
{{- if eq (include "graftlet.provider" .) "ssh" -}}
{{- $network := dig "network" "auto" (.ssh | default dict) -}}
{{- if and (eq $network "auto") (hasKey $old .name) (eq (get $old .name) (include "graftlet.sshHost" .)) }}{{ $network = "isolated" }}{{ end -}}
{{- $_ := set $networks .name $network -}}
{{- end -}}
{{- end -}}
{{- toJson $networks -}}
{{- end -}}

{{/* The configuration of a login at an sshd, as JSON. Takes (list VALUES NAME), with the name for graftlet.secretDirectory. */}}
{{- define "graftlet.sshDoor" -}}
{{- $ssh := index . 0 -}}
{{- $config := omit $ssh "existingSecret" "login" "privateKey" "knownHosts" "reverse" -}}
{{- if not $config.user }}{{ $_ := set $config "user" "root" }}{{ end -}}
{{- if or $ssh.existingSecret $ssh.privateKey -}}
{{- $directory := include "graftlet.secretDirectory" (index . 1) -}}
{{- $login := $ssh.login | default "key" -}}
{{- if eq $login "password" -}}
{{- $_ := set $config "passwordFile" (printf "%s/ssh-password" $directory) -}}
{{- else -}}
{{- $_ := set $config "privateKeyFile" (printf "%s/ssh-privatekey" $directory) -}}
{{- if eq $login "keyWithPassphrase" }}{{ $_ := set $config "passphraseFile" (printf "%s/ssh-passphrase" $directory) }}{{ end -}}
{{- if eq $login "keyWithCertificate" }}{{ $_ := set $config "certificateFile" (printf "%s/ssh-certificate" $directory) }}{{ end -}}
{{- end -}}
{{- if not (or $ssh.hostKeyFingerprints $ssh.hostCertificateAuthorities $ssh.knownHostsFile) -}}
{{- $_ := set $config "knownHostsFile" (printf "%s/known_hosts" $directory) -}}
{{- end -}}
{{- end -}}
{{- toJson $config -}}
{{- end -}}

{{/* The KubeletConfiguration of a node, as JSON; the node's own kubeletConfiguration takes precedence. */}}
{{- define "graftlet.kubeletConfiguration" -}}
{{- $node := .node -}}
{{/* Kubernetes' signer of serving certificates signs only for nodes, so a node with the account's identity has a self-signed certificate.
     EKS's signer signs for any subject. */}}
{{/* No cloud controller manager recognizes this providerID, so none deletes the Node because its machine is missing. */}}
{{- $kubelet := dict "providerID" (printf "graftlet://%s/%s/%s" (include "graftlet.namespace" .root) .root.Release.Name $node.name) "serverTLSBootstrap" (or (ne (include "graftlet.identity" (list .root $node)) "serviceAccount") (eq .root.Values.platform "eks")) -}}
{{- $reserved := dict -}}
{{- range $resource, $amount := $node.reserved }}{{ $_ := set $reserved $resource (toJson $amount | trimAll "\"") }}{{ end -}}
{{- if $reserved }}{{ $_ := set $kubelet "systemReserved" $reserved }}{{ end -}}
{{- toJson (mergeOverwrite $kubelet (deepCopy ($node.kubeletConfiguration | default dict))) -}}
{{- end -}}

{{/* The taints of a node, as JSON. */}}
{{- define "graftlet.taints" -}}
{{- $taints := list -}}
{{- if ne .defaultTaint false -}}
{{- $taints = append $taints (dict "key" "graftlet.dev/target" "value" .name "effect" "NoSchedule") -}}
{{- end -}}
{{- concat $taints (.taints | default list) | toJson -}}
{{- end -}}

{{/* One node of graftlet's configuration, as JSON. */}}
{{- define "graftlet.node" -}}
{{- $node := .node -}}
{{- $provider := include "graftlet.provider" $node -}}
{{/* DaemonSets and load balancers can exclude the node by these labels. */}}
{{- $labels := dict "graftlet.dev/target" $node.name "node.kubernetes.io/exclude-from-external-load-balancers" "" -}}
{{- $config := ternary (include "graftlet.sshConfig" (list .root $node) | fromJson) (merge (dict "inPod" true) (get $node $provider | default dict)) (eq $provider "ssh") -}}
{{- with .network }}{{ $_ := set $config "network" . }}{{ end -}}
{{- $entry := dict "name" $node.name "provider" $provider "port" .port -}}
{{- if eq .root.Values.kubeletAddress "service" }}{{ $_ := set $entry "kubeletService" (include "graftlet.kubeletService" (list .root $node.name)) }}{{ end -}}
{{- if .root.Values.rbac.create }}{{ $_ := set $entry "certificateSecret" (printf "%s.%s" (include "graftlet.certificates" .root) $node.name) }}{{ end -}}
{{- if $config }}{{ $_ := set $entry "providerConfig" $config }}{{ end -}}
{{- if $node.rootDir }}{{ $_ := set $entry "rootDir" $node.rootDir }}{{ end -}}
{{- if $node.daemonSets }}{{ $_ := set $entry "daemonSets" $node.daemonSets }}{{ end -}}
{{- with $node.driverTopologyKeys }}{{ $_ := set $entry "driverTopologyKeys" . }}{{ end -}}
{{- $_ := set $entry "labels" (merge dict ($node.labels | default dict) $labels) -}}
{{- with $node.annotations }}{{ $_ := set $entry "annotations" . }}{{ end -}}
{{- $_ := set $entry "taints" (include "graftlet.taints" $node | fromJsonArray) -}}
{{- $_ := set $entry "kubeletConfiguration" (include "graftlet.kubeletConfiguration" . | fromJson) -}}
{{- if eq (include "graftlet.identity" (list .root $node)) "serviceAccount" }}{{ $_ := set $entry "identity" "serviceAccount" }}{{ end -}}
{{- toJson $entry -}}
{{- end -}}

{{/* graftlet's configuration file. */}}
{{- define "graftlet.configuration" -}}
{{- $ports := include "graftlet.ports" . | fromJsonArray -}}
{{- $networks := include "graftlet.networks" . | fromJson -}}
{{- $nodes := list -}}
{{- range $index, $node := include "graftlet.nodes" . | fromJsonArray -}}
{{- $nodes = append $nodes (include "graftlet.node" (dict "root" $ "node" $node "port" (index $ports $index) "network" (get $networks $node.name)) | fromJson) -}}
{{- end -}}
apiVersion: graftlet.dev/v1alpha1
kind: GraftletConfiguration
certificateSecret: {{ include "graftlet.certificates" . }}
kubeletAddress: {{ .Values.kubeletAddress }}
{{- if include "graftlet.approves" . }}
approveServingCertificates: true
{{- end }}
{{- if ne (include "graftlet.servingSigner" .) "kubernetes.io/kubelet-serving" }}
servingCertificateSigner: {{ include "graftlet.servingSigner" . }}
{{- end }}
{{- if include "graftlet.publishes" . }}
endpointsOwner: {{ include "graftlet.clusterName" . }}.endpoints
{{- with .Values.publishServices.namespaces }}
endpointsNamespaces: {{ toJson . }}
{{- end }}
{{- end }}
{{- if ne (include "graftlet.egressTunnel" .) "auto" }}
egressTunnel: {{ include "graftlet.egressTunnel" . | quote }}
{{- end }}
healthzBindAddress: {{ include "graftlet.healthAddress" . }}
healthzPort: {{ include "graftlet.healthPort" . }}
{{- with include "graftlet.metricsPort" . }}
metricsPort: {{ . }}
{{- end }}
{{- with .Values.pagePort }}
pagePort: {{ int . }}
{{- end }}
{{- if .Values.fleet.enabled }}
fleet:
  release: {{ .Release.Name | quote }}
  nodeNames: {{ toJson .Values.fleet.nodeNames }}
{{- if .Values.reverse.existingSecret }}
  listener: { port: {{ int .Values.reverse.port }}, hostKeyFile: {{ include "graftlet.listenerKey" . | quote }} }
{{- end }}
{{- end }}
{{- if include "graftlet.showsNodes" . }}
nodeObjects: { release: {{ .Release.Name | quote }} }
{{- end }}
nodes:
{{ toYaml $nodes | indent 2 }}
{{- end -}}

{{/* "true" if the release has a local node, whose machine is the one that the Pod runs on. */}}
{{- define "graftlet.local" -}}
{{- range include "graftlet.nodes" . | fromJsonArray }}{{ if .local }}true{{ break }}{{ end }}{{ end -}}
{{- end -}}

{{/* A node's identity. On EKS it is the account by default, because EKS signs no client certificates. Takes (list ROOT NODE). */}}
{{- define "graftlet.identity" -}}
{{- (index . 1).identity | default (ternary "serviceAccount" "node" (eq (index . 0).Values.platform "eks")) -}}
{{- end -}}

{{/* The signer of the nodes' serving certificates. On EKS kubernetes.io/kubelet-serving signs only for EC2 instances. */}}
{{- define "graftlet.servingSigner" -}}
{{- .Values.servingCertificateSigner | default (ternary "beta.eks.amazonaws.com/app-serving" "kubernetes.io/kubelet-serving" (eq .Values.platform "eks")) -}}
{{- end -}}

{{/* Names of the nodes with an identity ("node" or "serviceAccount"), as JSON. Takes (list ROOT IDENTITY). */}}
{{- define "graftlet.namesOf" -}}
{{- $names := list -}}
{{- $identity := index . 1 -}}
{{- $root := index . 0 -}}
{{- range include "graftlet.nodes" $root | fromJsonArray -}}
{{- if eq (include "graftlet.identity" (list $root .)) $identity }}{{ $names = append $names .name }}{{ end -}}
{{- end -}}
{{- toJson $names -}}
{{- end -}}

{{/* "true" if a node with identity: serviceAccount has enabled a feature gate of the kubelet. Takes (list ROOT GATE). */}}
{{- define "graftlet.gateOfAccount" -}}
{{- $gate := index . 1 -}}
{{- $root := index . 0 -}}
{{- range include "graftlet.nodes" $root | fromJsonArray -}}
{{- $gates := dig "featureGates" dict (.kubeletConfiguration | default dict) -}}
{{- if and (eq (include "graftlet.identity" (list $root .)) "serviceAccount") (dig $gate (dig "AllBeta" false $gates) $gates) }}true{{ break }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* Names of the nodes whose serving certificates the account approves, as JSON. Nodes with identity: serviceAccount are not among them:
     the account would approve its own requests. */}}
{{- define "graftlet.approvedNames" -}}
{{- $names := list -}}
{{- range ternary (include "graftlet.nodes" . | fromJsonArray) list .Values.approveServingCertificates -}}
{{- if and (eq (include "graftlet.identity" (list $ .)) "node") (ne (dig "serverTLSBootstrap" true (.kubeletConfiguration | default dict)) false) -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- end -}}
{{- toJson $names -}}
{{- end -}}
