{{/* Parts that the Deployment's Pod and the hooks' Pods share. */}}

{{/* The values' labels for Pods, as YAML, except the labels that the Services and the Deployment select Pods by: only the chart sets
     these. */}}
{{- define "graftlet.podLabels" -}}
{{- with merge (omit .Values.podLabels "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component" "graftlet.dev/listener") (include "graftlet.commonLabels" . | fromYaml) }}
{{- toYaml . }}
{{- end }}
{{- end -}}

{{/* Security context of the Pod. Only the Pod's group can read the files of Secrets. */}}
{{- define "graftlet.podSecurity" -}}
{{- if include "graftlet.local" . -}}
# A Pod that serves its own machine must be root there.
runAsUser: 0
runAsGroup: 0
{{- else -}}
runAsNonRoot: true
{{- /* OpenShift assigns user and group IDs to each namespace, and rejects others. */}}
{{- if ne .Values.platform "openshift" }}
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
{{- end }}
seccompProfile: { type: RuntimeDefault }
{{- end }}
{{- end -}}

{{- define "graftlet.containerSecurity" -}}
readOnlyRootFilesystem: true
{{- if include "graftlet.local" . }}
privileged: true
{{- else }}
allowPrivilegeEscalation: false
capabilities: { drop: [ALL] }
{{- end }}
{{- end -}}

{{- define "graftlet.volumes" -}}
- name: configuration
  configMap: { name: {{ include "graftlet.fullname" . }} }
- name: state
  emptyDir: {}
- name: tmp
  emptyDir: {}
{{- $mode := ternary "0400" "0440" (not (empty (include "graftlet.local" .))) }}
{{- range include "graftlet.loginSecrets" . | fromJsonArray }}
# A missing Secret affects only its own node: the files appear once the Secret is created.
- name: {{ .name }}
  secret: { secretName: {{ .secret | quote }}, optional: true, defaultMode: {{ $mode }} }
{{- end }}
{{- range include "graftlet.machinePaths" . | fromJsonArray }}
- name: {{ .name }}
  hostPath: { path: {{ .path }}, type: DirectoryOrCreate }
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "graftlet.volumeMounts" -}}
- { name: configuration, mountPath: /etc/graftlet/configuration, readOnly: true }
- { name: state, mountPath: /var/lib/graftlet }
- { name: tmp, mountPath: /tmp }
{{- range include "graftlet.loginSecrets" . | fromJsonArray }}
- { name: {{ .name }}, mountPath: {{ .directory | quote }}, readOnly: true }
{{- end }}
{{- range include "graftlet.machinePaths" . | fromJsonArray }}
- { name: {{ .name }}, mountPath: {{ .path }}, mountPropagation: {{ .propagation }} }
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Paths of the machine that the Pod mounts for local nodes, as JSON. They are the same in the Pod and on the machine: mounts that
     graftlet creates in a root directory appear on the machine. */}}
{{- define "graftlet.machinePaths" -}}
{{- $paths := list -}}
{{- $roots := include "graftlet.localRoots" . | fromJsonArray -}}
{{- range $index, $node := include "graftlet.nodes" . | fromJsonArray -}}
{{- if .local -}}
{{- if not $paths -}}
{{- $paths = list (dict "name" "run" "path" "/run" "propagation" "HostToContainer") (dict "name" "pod-logs" "path" "/var/log/pods" "propagation" "HostToContainer") (dict "name" "container-logs" "path" "/var/log/containers" "propagation" "HostToContainer") (dict "name" "cgroups" "path" "/sys/fs/cgroup" "propagation" "HostToContainer") -}}
{{- end -}}
{{- $root := include "graftlet.root" . -}}
{{- if has $root $roots }}{{ $paths = append $paths (dict "name" (printf "root-%d" $index) "path" $root "propagation" "Bidirectional") }}{{ end -}}
{{- range $field := list "endpoint" "imageEndpoint" -}}
{{- $folder := dig "cri" $field "" $node | trimPrefix "unix://" | dir -}}
{{- if and (ne $folder ".") (not (regexMatch "^(/var)?/run(/|$)" $folder)) -}}
{{- $paths = append $paths (dict "name" (printf "%s-%d" (lower $field) $index) "path" $folder "propagation" "HostToContainer") -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $paths -}}
{{- end -}}

{{/* The user's affinity, with a rule that keeps the Pod off the release's own nodes: a Pod that serves a machine must not run on it. The
     names of a fleet's nodes are unknown, so it avoids all nodes with graftlet's label. */}}
{{- define "graftlet.affinity" -}}
{{- $names := include "graftlet.nodeNames" . | fromJsonArray -}}
{{- $elsewhere := ternary (dict "key" "graftlet.dev/target" "operator" "DoesNotExist") (dict "key" "graftlet.dev/target" "operator" "NotIn" "values" $names) .Values.fleet.enabled -}}
{{- $affinity := deepCopy .Values.affinity -}}
{{- $node := $affinity.nodeAffinity | default dict -}}
{{- $terms := list -}}
{{- range dig "requiredDuringSchedulingIgnoredDuringExecution" "nodeSelectorTerms" (list dict) $node -}}
{{- $terms = append $terms (merge (dict "matchExpressions" (append (.matchExpressions | default list) $elsewhere)) .) -}}
{{- end -}}
{{- $_ := set $node "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms) -}}
{{- toYaml (set $affinity "nodeAffinity" $node) -}}
{{- end -}}

{{/* A probe, with the address that answers it. Takes (list ROOT PROBE). */}}
{{- define "graftlet.probe" -}}
{{- $probe := deepCopy (index . 1) -}}
{{- if and (include "graftlet.local" (index . 0)) $probe.httpGet -}}
{{- $_ := set $probe "httpGet" (merge $probe.httpGet (dict "host" (include "graftlet.healthAddress" (index . 0)))) -}}
{{- end -}}
{{- toYaml $probe -}}
{{- end -}}

{{/* Scheduling of the release's Pods, and their priority. */}}
{{- define "graftlet.placement" -}}
{{- if include "graftlet.serves" . }}
affinity: {{- include "graftlet.affinity" . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The user, the image and the files of a Pod that runs graftlet. */}}
{{- define "graftlet.podBase" -}}
securityContext:
  {{- with .Values.podSecurityContext }}
  {{- toYaml (mergeOverwrite (include "graftlet.podSecurity" $ | fromYaml) .) | nindent 2 }}
  {{- else }}
  {{- include "graftlet.podSecurity" . | nindent 2 }}
  {{- end }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- if include "graftlet.local" . }}
hostNetwork: true
hostPID: true
# Pods with dnsPolicy: Default get this Pod's resolv.conf, which must be the machine's.
dnsPolicy: Default
{{- else }}
{{- with .Values.dnsPolicy }}
dnsPolicy: {{ . }}
{{- end }}
{{- with .Values.dnsConfig }}
dnsConfig: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- with .Values.hostAliases }}
hostAliases: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
enableServiceLinks: {{ .Values.enableServiceLinks }}
volumes: {{- include "graftlet.volumes" . | nindent 2 }}
{{- end -}}

{{- define "graftlet.containerBase" -}}
image: {{ include "graftlet.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
env:
  # Lets `graftlet status`, run with kubectl exec, find the process.
  - { name: GRAFTLET_STATUS_SOCKET, value: /var/lib/graftlet/status.sock }
  {{- if or (include "graftlet.publishes" .) (include "graftlet.fleetServices" .) }}
  # The node that graftlet names in the endpoints that it publishes.
  - { name: GRAFTLET_POD_NODE, valueFrom: { fieldRef: { fieldPath: spec.nodeName } } }
  {{- end }}
  {{- if .Values.fleet.enabled }}
  # A young generation of 8 MiB instead of 1: hundreds of nodes may start at the same time.
  - { name: NODE_OPTIONS, value: --max-semi-space-size=8 }
  {{- end }}
  {{- with .Values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .Values.extraEnvFrom }}
envFrom: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- with .Values.containerSecurityContext }}
  {{- toYaml (mergeOverwrite (include "graftlet.containerSecurity" $ | fromYaml) .) | nindent 2 }}
  {{- else }}
  {{- include "graftlet.containerSecurity" . | nindent 2 }}
  {{- end }}
{{- with .Values.resources }}
resources: {{- toYaml . | nindent 2 }}
{{- end }}
volumeMounts: {{- include "graftlet.volumeMounts" . | nindent 2 }}
{{- end -}}

{{/* The flags that `graftlet` and `graftlet leave` share. */}}
{{- define "graftlet.flags" -}}
- --nodes=/etc/graftlet/configuration/nodes.yaml
- --cert-dir=/var/lib/graftlet/pki
- --v={{ .Values.logVerbosity }}
{{- end -}}

{{/* Annotations for objects that a hook's Pod needs: created before the Pod, and deleted after it. Takes the hook's name. */}}
{{- define "graftlet.hook" -}}
helm.sh/hook: {{ . }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded,hook-failed
helm.sh/hook-weight: "-5"
{{- end -}}
