{{/* From nodes of the values to nodes[] of graftlet's own configuration. */}}

{{/* The machines in nodes of the values, as JSON: a list in its own order, a map in that of its keys without entries that are null. Each has
     its `name`, and says in `at` where it is in the values, for messages. */}}
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

{{/* A key of nodes, with a dot in it as --set takes it. */}}
{{- define "graftlet.keyPath" -}}
nodes.{{ . | replace "." "\\." }}
{{- end -}}

{{/* The provider of a node of the values. */}}
{{- define "graftlet.provider" -}}
{{- .provider | default (ternary "ssh" (ternary "docker" "cri" (hasKey . "docker")) (hasKey . "ssh")) -}}
{{- end -}}

{{/* Of the health endpoint. On a machine of its own network the kubelet that runs the Pod has the usual ones. */}}
{{- define "graftlet.healthPort" -}}
{{ ternary 10348 10248 (not (empty (include "graftlet.local" .))) }}
{{- end -}}

{{/* Where it listens: in a network of its own for the machine's probes; in the machine's own for nobody from outside. */}}
{{- define "graftlet.healthAddress" -}}
{{ ternary "127.0.0.1" "0.0.0.0" (not (empty (include "graftlet.local" .))) }}
{{- end -}}

{{/* The ports of the nodes' kubelet APIs in their order, as JSON: what a node names, else the next free from 10250 (or 10350) up. */}}
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

{{/* The Secrets by which nodes log in, at their machines and on the way there, as JSON: {name, secret, directory} of each, where
     `directory` is in the Pod. */}}
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

{{/* The Secret by which a node logs in: one that is there, or the chart's own for a key in the values. Takes (list ROOT NODE). */}}
{{- define "graftlet.loginSecret" -}}
{{- $ssh := (index . 1).ssh | default dict -}}
{{- $ssh.existingSecret | default (ternary (printf "%s-login-%s" (include "graftlet.fullname" (index . 0)) (index . 1).name) "" (not (empty $ssh.privateKey))) -}}
{{- end -}}

{{/* "true" where a machine of nodes[] opens a reverse tunnel. */}}
{{- define "graftlet.reversedNodes" -}}
{{- range include "graftlet.nodes" . | fromJsonArray }}{{ if dig "ssh" "reverse" false . }}true{{ break }}{{ end }}{{ end -}}
{{- end -}}

{{/* "true" where graftlet has a listener for reverse tunnels: of machines in nodes[], or of GraftedNodes. */}}
{{- define "graftlet.reversed" -}}
{{- if or (include "graftlet.reversedNodes" .) (and .Values.fleet.enabled .Values.reverse.existingSecret) }}true{{ end -}}
{{- end -}}

{{/* Path of the listener's key in the Pod. */}}
{{- define "graftlet.listenerKey" -}}
{{ include "graftlet.listenerDirectory" . }}/ssh-privatekey
{{- end -}}

{{/* Where the listener's key is in the Pod. No node can have that name. */}}
{{- define "graftlet.listenerDirectory" -}}
{{ include "graftlet.secretDirectory" "_listener" }}
{{- end -}}

{{/* By which the listener's Service finds its Pod: the release's, or the one that drains it. */}}
{{- define "graftlet.listenerLabels" -}}
graftlet.dev/listener: {{ include "graftlet.fullname" . }}
{{- end -}}

{{/* A machine on the way to a node: no node can have that name. Takes (list NODE-NAME INDEX). */}}
{{- define "graftlet.hopName" -}}
{{ printf "%s_%d" (index . 0) (index . 1) }}
{{- end -}}

{{/* Where a Secret is in the Pod. Takes the name of a node, or of a machine on the way there. */}}
{{- define "graftlet.secretDirectory" -}}
/etc/graftlet/nodes/{{ . }}
{{- end -}}

{{/* The machine's name or address; of one that dials in, the name in known_hosts alone. Takes a node. */}}
{{- define "graftlet.sshHost" -}}
{{ dig "ssh" "host" "" . | default (ternary .name "" (dig "ssh" "reverse" false .)) }}
{{- end -}}

{{/* The ssh provider's configuration, as JSON: what the values say, and the files of the Secrets. Takes (list ROOT NODE). */}}
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

{{/* The nodes of the release as it stands, as graftlet's configuration has them, in JSON; none where it is not asked for. */}}
{{- define "graftlet.standing" -}}
{{- $map := lookup "v1" "ConfigMap" (include "graftlet.namespace" .) (include "graftlet.fullname" .) | default dict -}}
{{- (dig "data" "nodes.yaml" "" $map | fromYaml).nodes | default list | toJson -}}
{{- end -}}

{{/* The networks of the pods of nodes over SSH by their names, as JSON. "auto" is left to the machine. A node that stands, and was not left
     to its machine, stays isolated: an upgrade gives neither it nor the account a way more. */}}
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

{{/* How graftlet logs in at an sshd, as JSON. Takes (list VALUES NAME), the name as graftlet.secretDirectory takes it. */}}
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

{{/* The KubeletConfiguration of a node, as JSON; what the values say of it wins. */}}
{{- define "graftlet.kubeletConfiguration" -}}
{{- $node := .node -}}
{{/* Kubernetes' signer of serving certificates signs for nodes alone, so that an account serves a self-signed certificate. EKS' signs for any
     subject. */}}
{{/* A provider that no cloud controller knows: none deletes the Node for not finding a machine of it. */}}
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
{{/* DaemonSets, and load balancers, can leave the node out by these. */}}
{{- $labels := dict "graftlet.dev/target" $node.name "node.kubernetes.io/exclude-from-external-load-balancers" "" -}}
{{- $config := ternary (include "graftlet.sshConfig" (list .root $node) | fromJson) (merge (dict "inPod" true) (get $node $provider | default dict)) (eq $provider "ssh") -}}
{{- with .network }}{{ $_ := set $config "network" . }}{{ end -}}
{{- $entry := dict "name" $node.name "provider" $provider "port" .port -}}
{{- if eq .root.Values.kubeletAddress "service" }}{{ $_ := set $entry "kubeletService" (include "graftlet.kubeletService" (list .root $node.name)) }}{{ end -}}
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
{{- if ne .Values.egressTunnel "auto" }}
egressTunnel: {{ .Values.egressTunnel | quote }}
{{- end }}
healthzBindAddress: {{ include "graftlet.healthAddress" . }}
healthzPort: {{ include "graftlet.healthPort" . }}
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
nodes:
{{ toYaml $nodes | indent 2 }}
{{- end -}}

{{/* "true" where a node is a machine that the Pod itself runs on. */}}
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

{{/* The nodes with that identity ("node" or "serviceAccount"): their names, as JSON. Takes (list ROOT IDENTITY). */}}
{{- define "graftlet.namesOf" -}}
{{- $names := list -}}
{{- $identity := index . 1 -}}
{{- $root := index . 0 -}}
{{- range include "graftlet.nodes" $root | fromJsonArray -}}
{{- if eq (include "graftlet.identity" (list $root .)) $identity }}{{ $names = append $names .name }}{{ end -}}
{{- end -}}
{{- toJson $names -}}
{{- end -}}

{{/* Not empty if a node with identity: serviceAccount has a feature gate of the kubelet on. Takes (list ROOT GATE). */}}
{{- define "graftlet.gateOfAccount" -}}
{{- $gate := index . 1 -}}
{{- $root := index . 0 -}}
{{- range include "graftlet.nodes" $root | fromJsonArray -}}
{{- $gates := dig "featureGates" dict (.kubeletConfiguration | default dict) -}}
{{- if and (eq (include "graftlet.identity" (list $root .)) "serviceAccount") (dig $gate (dig "AllBeta" false $gates) $gates) }}true{{ break }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* The nodes whose serving certificates the account approves: their names, as JSON. One with identity: serviceAccount would have it
     approve what it has asked for itself. */}}
{{- define "graftlet.approvedNames" -}}
{{- $names := list -}}
{{- range ternary (include "graftlet.nodes" . | fromJsonArray) list .Values.approveServingCertificates -}}
{{- if and (eq (include "graftlet.identity" (list $ .)) "node") (ne (dig "serverTLSBootstrap" true (.kubeletConfiguration | default dict)) false) -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- end -}}
{{- toJson $names -}}
{{- end -}}
