{{/* Rejects values that the schema accepts, each with a sentence that names the field and the remedy. */}}

{{- define "graftlet.check" -}}
{{- include "graftlet.check.fleet" . -}}
{{- include "graftlet.check.release" . -}}
{{- include "graftlet.check.network" . -}}
{{- $names := dict -}}
{{- $ports := dict -}}
{{- include "graftlet.check.keys" . -}}
{{- $health := include "graftlet.healthPort" . -}}
{{- $byKey := kindIs "map" .Values.nodes -}}
{{- range $node := include "graftlet.nodes" . | fromJsonArray -}}
{{- $at := $node.at -}}
{{- include "graftlet.check.name" (dict "at" $at "field" (ternary (printf "%s: the key" $at) (printf "%s.name" $at) $byKey) "name" $node.name "names" $names) -}}
{{- with $node.port -}}
{{- $port := int . | toString -}}
{{- if hasKey $ports $port }}{{ printf "%s.port: %s also has port %s: give each node its own port, or leave port out" $at (get $ports $port) $port | fail }}{{ end -}}
{{- if eq $port $health }}{{ printf "%s.port: graftlet answers probes at port %s: choose another, or leave port out" $at $port | fail }}{{ end -}}
{{- $_ := set $ports $port $at -}}
{{- end -}}
{{- include "graftlet.check.provider" (dict "at" $at "node" $node) -}}
{{- include "graftlet.check.kubelet" (dict "at" $at "node" $node) -}}
{{- if eq (include "graftlet.provider" $node) "ssh" }}{{ include "graftlet.check.ssh" (dict "at" (printf "%s.ssh" $at) "ssh" ($node.ssh | default dict)) }}{{ end -}}
{{- end -}}
{{- include "graftlet.check.roots" . -}}
{{- end -}}

{{/* Checks of the release as a whole. */}}
{{- define "graftlet.check.release" -}}
{{- $values := .Values -}}
{{- if and $values.image.digest (not (regexMatch "^sha256:[0-9a-f]{64}$" $values.image.digest)) -}}
{{- printf "image.digest %q is not a digest: write sha256: and 64 hexadecimal digits, or leave it empty to use the tag" $values.image.digest | fail -}}
{{- end -}}
{{- if include "graftlet.reversed" . -}}
{{- if not (regexMatch "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$" $values.reverse.existingSecret) }}{{ printf "reverse.existingSecret %q cannot be a Secret's name: name the Secret that has the private key of the listener for reverse tunnels as ssh-privatekey" $values.reverse.existingSecret | fail }}{{ end -}}
{{- $port := int $values.reverse.port -}}
{{- if or (has (toString $port) (include "graftlet.ports" . | fromJsonArray | toStrings)) (eq (toString $port) (include "graftlet.healthPort" .)) (and (ge $port 20000) (le $port 29999)) }}{{ printf "reverse.port: %d is used by a node, by the probes, or for Services (20000 to 29999): choose another port" $port | fail }}{{ end -}}
{{- end -}}
{{- with $values.pagePort -}}
{{- $taken := append (append (include "graftlet.ports" $ | fromJsonArray | toStrings) (include "graftlet.healthPort" $)) (ternary (int $values.reverse.port | toString) "" (not (empty (include "graftlet.reversed" $)))) -}}
{{- if has (int . | toString) $taken }}{{ printf "pagePort: %d is used by a node, by the probes or by the listener: choose another port, such as 4194" (int .) | fail }}{{ end -}}
{{- end -}}
{{- with include "graftlet.metricsPort" . -}}
{{- $taken := list (include "graftlet.healthPort" $) (int $values.pagePort | toString) (ternary (int $values.reverse.port | toString) "" (not (empty (include "graftlet.reversed" $)))) -}}
{{- if has . (concat $taken (include "graftlet.ports" $ | fromJsonArray | toStrings)) }}{{ printf "monitoring.metricsPort: %s is used by a node, by the probes, by the dashboard or by the listener: choose another port" . | fail }}{{ end -}}
{{- end -}}
{{- if and $values.monitoring.serviceMonitor.enabled (ne $values.kubeletAddress "service") }}{{ fail "monitoring.serviceMonitor.enabled: nodes are scraped through their Services: set kubeletAddress: service" }}{{ end -}}
{{- if not (or $values.serviceAccount.create $values.serviceAccount.name) }}{{ fail "serviceAccount.name is empty: name an existing account, or set serviceAccount.create: true" }}{{ end -}}
{{- if not (regexMatch "^([0-9]+[smh])+$" $values.drain.timeout) }}{{ printf "drain.timeout %q is not a duration: write it as 90s or 5m" $values.drain.timeout | fail }}{{ end -}}
{{- if and $values.rbac.namespaces (not (include "graftlet.namesOf" (list . "serviceAccount") | fromJsonArray)) -}}
{{- fail "rbac.namespaces: no node has identity: serviceAccount, and other nodes get their permissions from the cluster: leave it empty" -}}
{{- end -}}
{{- if and $values.rbac.allNamespaces $values.rbac.namespaces }}{{ fail "rbac.allNamespaces and rbac.namespaces exclude each other: keep one of them" }}{{ end -}}
{{- with include "graftlet.namesOf" (list . "serviceAccount") | fromJsonArray -}}
{{- if not (or $values.rbac.namespaces $values.rbac.allNamespaces) -}}
{{- printf "rbac.namespaces is empty, and the identity of %s is graftlet's account, which could read the Secrets and create tokens of all namespaces: list the namespaces whose pods may run there, or set rbac.allNamespaces: true" (join ", " .) | fail -}}
{{- end -}}
{{- end -}}
{{- if and (eq $values.kubeletAddress "host") (not (include "graftlet.local" .)) -}}
{{- fail "kubeletAddress: host is the address of the machine that the Pod runs on, and works only for nodes with local: true: write service or podIP" -}}
{{- end -}}
{{- end -}}

{{/* Checks of the NetworkPolicy, and of published Services. */}}
{{- define "graftlet.check.network" -}}
{{- $policy := .Values.networkPolicy -}}
{{- if and $policy.create (include "graftlet.local" .) -}}
{{- fail "networkPolicy.create: a Pod of nodes with local: true is in the machine's own network, where NetworkPolicies have no effect: set it to false" -}}
{{- end -}}
{{- if and (eq (toString .Values.publishServices.enabled) "true") (include "graftlet.local" .) -}}
{{- fail "publishServices.enabled: a Pod of nodes with local: true is in the machine's own network, where ports 20000 to 29999 would be open: use a separate release for tunneled nodes, or set it to false" -}}
{{- end -}}
{{- if and $policy.create (not (or $policy.apiServer $policy.from)) -}}
{{- fail "networkPolicy.apiServer is empty, so logs and exec would fail: list the control plane's addresses, such as 192.0.2.10/32" -}}
{{- end -}}
{{- range $cidr := $policy.apiServer -}}
{{- if not (regexMatch "^[0-9a-fA-F.:]+/[0-9]{1,3}$" $cidr) }}{{ printf "networkPolicy.apiServer: %q is not a CIDR: write an address and its prefix length, such as 192.0.2.10/32" $cidr | fail }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* Checks that the key of an entry of nodes is the node's name. */}}
{{- define "graftlet.check.keys" -}}
{{- if kindIs "map" .Values.nodes -}}
{{- range $key, $node := .Values.nodes -}}
{{- if and $node (ne (dig "name" $key ($node | default dict)) $key) }}{{ printf "%s.name: %q differs from the key %s, which is the node's name: leave name out, or change the key" (include "graftlet.keyPath" $key) $node.name $key | fail }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "graftlet.check.name" -}}
{{- $name := .name -}}
{{- if not (and (le (len $name) 63) (regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$" $name)) -}}
{{- printf "%s %q cannot be a node's name: write at most 63 lower-case letters, digits, - and ., such as edge-1" .field $name | fail -}}
{{- end -}}
{{- if hasKey .names $name }}{{ printf "%s.name: %s is also called %s: give each node its own name" .at (get .names $name) $name | fail }}{{ end -}}
{{- $_ := set .names $name .at -}}
{{- end -}}

{{/* Checks that a node has one provider, and that the use of the Pod's own machine is explicit. */}}
{{- define "graftlet.check.provider" -}}
{{- $node := .node -}}
{{- $given := list -}}
{{- range list "ssh" "cri" "docker" }}{{ if hasKey $node . }}{{ $given = append $given . }}{{ end }}{{ end -}}
{{- if gt (len $given) 1 }}{{ printf "%s has both %s: keep the one by which graftlet reaches the machine" .at (join " and " $given) | fail }}{{ end -}}
{{- if not (or $given $node.provider) -}}
{{- printf "%s does not say how its machine is reached: add ssh with host and existingSecret (or cri or docker, with local: true, for the machine that the Pod runs on)" .at | fail -}}
{{- end -}}
{{- if and $given $node.provider (ne (first $given) $node.provider) -}}
{{- printf "%s has provider: %s and %s: make them agree, or leave out provider" .at $node.provider (first $given) | fail -}}
{{- end -}}
{{- $provider := include "graftlet.provider" $node -}}
{{- if and $node.local (eq $provider "ssh") -}}
{{- printf "%s.local: a machine that is reached over SSH is not the Pod's own: leave local out" .at | fail -}}
{{- end -}}
{{- if not (or $node.local (eq $provider "ssh")) -}}
{{- printf "%s: %s makes the Pod privileged on the machine that it runs on, to use the runtime there: add local: true to confirm, or use ssh for another machine" .at $provider | fail -}}
{{- end -}}
{{- $sockets := dict "cri.endpoint" (dig "cri" "endpoint" "" $node) "cri.imageEndpoint" (dig "cri" "imageEndpoint" "" $node) "docker.socket" (dig "docker" "socket" "" $node) -}}
{{- range $field, $socket := $sockets -}}
{{- if and $socket (not (regexMatch "^unix:///." $socket)) }}{{ printf "%s.%s %q is not a Unix socket: write it as unix:///run/containerd/containerd.sock" $.at $field $socket | fail }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* Checks for labels that a node is not allowed to set, and for fields that have a value of their own. */}}
{{- define "graftlet.check.kubelet" -}}
{{- $at := .at -}}
{{- range $key, $value := .node.labels -}}
{{- $domain := regexReplaceAll "/.*$" $key "" -}}
{{- if and (contains "/" $key) (regexMatch "(^|\\.)(kubernetes|k8s)\\.io$" $domain) (not (regexMatch "(^|\\.)(node|kubelet)\\.kubernetes\\.io$" $domain)) (not (regexMatch "^(topology|failure-domain\\.beta)\\.kubernetes\\.io/(zone|region)$" $key)) -}}
{{- printf "%s.labels: a node cannot set %s: use your own domain, or node.kubernetes.io" $at $key | fail -}}
{{- end -}}
{{- if has $key (list "graftlet.dev/target" "node.kubernetes.io/exclude-from-external-load-balancers") }}{{ printf "%s.labels: %s is set by the chart: leave it out" $at $key | fail }}{{ end -}}
{{- end -}}
{{- range $key, $value := .node.annotations -}}
{{- if regexMatch "^(graftlet\\.dev/.*|volumes\\.kubernetes\\.io/controller-managed-attach-detach|csi\\.volume\\.kubernetes\\.io/nodeid)$" $key }}{{ printf "%s.annotations: %s is set by the node itself: leave it out" $at $key | fail }}{{ end -}}
{{- end -}}
{{- $instead := dict "port" "port" "registerWithTaints" "taints" "systemReserved" "reserved" -}}
{{- range $field, $other := $instead -}}
{{- if hasKey ($.node.kubeletConfiguration | default dict) $field }}{{ printf "%s.kubeletConfiguration.%s: set %s.%s instead" $at $field $at $other | fail }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* Checks of the login, and of how the machine is identified. */}}
{{- define "graftlet.check.ssh" -}}
{{- $at := .at -}}
{{- $ssh := .ssh -}}
{{- if and $ssh.reverse (not $ssh.existingSecret) }}{{ printf "%s.reverse: name a Secret in existingSecret that has the machine's public keys as authorized_keys" $at | fail }}{{ end -}}
{{- if and $ssh.reverse $ssh.proxy }}{{ printf "%s has both reverse and proxy: with reverse the machine connects to graftlet; keep one of them" $at | fail }}{{ end -}}
{{- if not (or (and $ssh.reverse (not $ssh.host)) (regexMatch "^[a-zA-Z0-9_.:%-]+$" ($ssh.host | default ""))) }}{{ printf "%s.host %q is not a host name or address: write one, such as 192.0.2.7" $at ($ssh.host | default "") | fail }}{{ end -}}
{{- $ways := list -}}
{{- range list "existingSecret" "privateKey" "privateKeyFile" "agentSocket" "passwordFile" }}{{ if get $ssh . }}{{ $ways = append $ways . }}{{ end }}{{ end -}}
{{- if ne (len $ways) 1 -}}
{{- printf "%s %s: name a Secret that has the key as ssh-privatekey in existingSecret,%s or one of privateKeyFile, agentSocket, passwordFile in a volume of extraVolumes" $at (ternary (printf "has both %s" (join " and " $ways)) "has no way to log in" (gt (len $ways) 1)) (ternary "" " give the key itself as privateKey," (contains ".proxyJump[" $at)) | fail -}}
{{- end -}}
{{- if and $ssh.existingSecret (not (regexMatch "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$" $ssh.existingSecret)) -}}
{{- printf "%s.existingSecret %q cannot be a Secret's name: name a Secret in the release's namespace, such as edge-1-ssh" $at $ssh.existingSecret | fail -}}
{{- end -}}
{{- if and $ssh.privateKey (not (contains "PRIVATE KEY-----" $ssh.privateKey)) }}{{ printf "%s.privateKey is not a private key: pass the file's content with --set-file, or name a Secret in existingSecret" $at | fail }}{{ end -}}
{{- if and $ssh.knownHosts (not $ssh.privateKey) }}{{ printf "%s.knownHosts requires privateKey: add it; with existingSecret, put known_hosts into the Secret" $at | fail }}{{ end -}}
{{- if and $ssh.login (not $ssh.existingSecret) }}{{ printf "%s.login selects keys of existingSecret: add existingSecret, or leave login out" $at | fail }}{{ end -}}
{{- if and $ssh.passphraseFile (not $ssh.privateKeyFile) }}{{ printf "%s.passphraseFile requires privateKeyFile: add it; for a Secret write login: keyWithPassphrase" $at | fail }}{{ end -}}
{{- if and $ssh.certificateFile (not $ssh.privateKeyFile) }}{{ printf "%s.certificateFile requires privateKeyFile: add it; for a Secret write login: keyWithCertificate" $at | fail }}{{ end -}}
{{- include "graftlet.check.hostKey" . -}}
{{- range list "privateKeyFile" "passphraseFile" "certificateFile" "agentSocket" "passwordFile" "knownHostsFile" "proxyPasswordFile" "rootDir" -}}
{{- $path := get $ssh . -}}
{{- if and $path (not (hasPrefix "/" $path)) }}{{ printf "%s.%s %q is not an absolute path: begin it with /" $at . $path | fail }}{{ end -}}
{{- end -}}
{{- range $hop, $door := $ssh.proxyJump }}{{ include "graftlet.check.ssh" (dict "at" (printf "%s.proxyJump[%d]" $at $hop) "ssh" $door) }}{{ end -}}
{{- if regexMatch ":[^:/]*@" (regexReplaceAll "^[a-z0-9]+://" ($ssh.proxy | default "") "") }}{{ printf "%s.proxy has a password: put it into the Secret as proxy-password, or name a proxyPasswordFile" $at | fail }}{{ end -}}
{{- if and $ssh.runtime (not (regexMatch "^(auto|unix:///.+)$" $ssh.runtime)) }}{{ printf "%s.runtime %q: write auto, or a socket of the machine as unix:///run/containerd/containerd.sock" $at $ssh.runtime | fail }}{{ end -}}
{{- if and $ssh.kubernetesService (not (regexMatch "^[^/]+:[0-9]{1,5}$" $ssh.kubernetesService)) }}{{ printf "%s.kubernetesService %q: write the host:port at which pods on the machine reach the API server" $at $ssh.kubernetesService | fail }}{{ end -}}
{{- end -}}

{{- define "graftlet.check.hostKey" -}}
{{- $at := .at -}}
{{- $ssh := .ssh -}}
{{- range $ssh.hostKeyFingerprints -}}
{{- if not (regexMatch "^SHA256:[A-Za-z0-9+/]{43}=?$" .) }}{{ printf "%s.hostKeyFingerprints: %q is not a fingerprint: write it as ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub prints it on the machine, SHA256:…" $at . | fail }}{{ end -}}
{{- end -}}
{{- range $ssh.hostCertificateAuthorities -}}
{{- if not (regexMatch "^SHA256:[A-Za-z0-9+/]{43}=?$" .) }}{{ printf "%s.hostCertificateAuthorities: %q is not a fingerprint: write it as ssh-keygen -lf prints it for the authority's public key, SHA256:…" $at . | fail }}{{ end -}}
{{- end -}}
{{- if and $ssh.hostCertificateAuthorities $ssh.knownHostsFile }}{{ printf "%s has both hostCertificateAuthorities and knownHostsFile: write the authority into that file as @cert-authority, or keep one of them" $at | fail }}{{ end -}}
{{- if and $ssh.hostKeyFingerprints $ssh.knownHostsFile }}{{ printf "%s has both hostKeyFingerprints and knownHostsFile: keep one of them" $at | fail }}{{ end -}}
{{- range list "hostKeyFingerprints" "hostCertificateAuthorities" "knownHostsFile" }}{{ if and $ssh.knownHosts (get $ssh .) }}{{ printf "%s has both knownHosts and %s: keep one of them" $at . | fail }}{{ end }}{{ end -}}
{{- if and $ssh.hostKey (not $ssh.knownHostsFile) -}}
{{- printf "%s.hostKey: a host key that is trusted on first use must outlive the Pod: set knownHostsFile to a file in a volume of extraVolumes, or use hostKeyFingerprints" $at | fail -}}
{{- end -}}
{{- if not (or $ssh.existingSecret $ssh.knownHosts $ssh.hostKeyFingerprints $ssh.hostCertificateAuthorities $ssh.knownHostsFile) -}}
{{- printf "%s does not say which host key is trusted: add %shostKeyFingerprints, hostCertificateAuthorities, or knownHostsFile" $at (ternary "knownHosts, " "" (not (empty $ssh.privateKey))) | fail -}}
{{- end -}}
{{- end -}}
