{{/* Names and labels that the objects share. */}}

{{- define "graftlet.name" -}}
{{ .Values.nameOverride | default .Chart.Name }}
{{- end -}}

{{/* The release's name, followed by the chart's name unless it is part of it; short enough for suffixes. */}}
{{- define "graftlet.fullname" -}}
{{- $own := include "graftlet.name" . -}}
{{- $name := .Values.fullnameOverride | default (ternary .Release.Name (printf "%s-%s" .Release.Name $own) (contains $own .Release.Name)) -}}
{{- $name | trunc 48 | trimSuffix "-" -}}
{{- end -}}

{{/* Namespace of the release's objects. */}}
{{- define "graftlet.namespace" -}}
{{ .Values.namespaceOverride | default .Release.Namespace }}
{{- end -}}

{{/* Name of the release's cluster-scoped objects. Namespaces have no dots, so no two releases share this name. */}}
{{- define "graftlet.clusterName" -}}
{{ include "graftlet.fullname" . }}.{{ include "graftlet.namespace" . }}
{{- end -}}

{{/* Labels of the Deployment's Pod, but not of the hooks' Pods: the Service selects only the former. */}}
{{- define "graftlet.selectorLabels" -}}
app.kubernetes.io/name: {{ include "graftlet.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: kubelet
{{- end -}}

{{/* The chart's own labels, which all objects have. */}}
{{- define "graftlet.standardLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/name: {{ include "graftlet.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "graftlet.labels" -}}
{{ include "graftlet.standardLabels" . }}
{{- include "graftlet.commonLabels" . }}
{{- end -}}

{{/* The labels of an object with additional labels in the values. These override common labels, but not those of the chart. Takes (list
     ROOT LABELS). */}}
{{- define "graftlet.labelsWith" -}}
{{- $root := index . 0 -}}
{{- merge (include "graftlet.standardLabels" $root | fromYaml) (index . 1) (include "graftlet.commonLabels" $root | fromYaml) | toYaml -}}
{{- end -}}

{{/* The user's own labels, except keys that select objects. Each is on its own line, after a newline. */}}
{{- define "graftlet.commonLabels" -}}
{{- with omit .Values.commonLabels "helm.sh/chart" "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component" "app.kubernetes.io/version" "app.kubernetes.io/managed-by" "graftlet.dev/listener" }}
{{ toYaml . }}
{{- end -}}
{{- end -}}

{{- define "graftlet.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "graftlet.fullname" .) }}
{{- end -}}

{{- define "graftlet.account" -}}
system:serviceaccount:{{ include "graftlet.namespace" . }}:{{ include "graftlet.serviceAccount" . }}
{{- end -}}

{{/* Name of the Secret in which all nodes kept their certificates before each had a Secret of its own. */}}
{{- define "graftlet.certificates" -}}
{{ include "graftlet.fullname" . }}-certificates
{{- end -}}

{{/* Names of the Secrets with the certificates of each node of the values, as JSON. Without rbac.create the account's permissions are not the
     chart's: then all nodes share one Secret, as before. No Secret of a GraftedNode has a dot after the prefix. */}}
{{- define "graftlet.certificateSecrets" -}}
{{- $names := list -}}
{{- range ternary (include "graftlet.nodeNames" . | fromJsonArray) list .Values.rbac.create }}{{ $names = append $names (printf "%s.%s" (include "graftlet.certificates" $) .) }}{{ end -}}
{{- toJson $names -}}
{{- end -}}

{{/* Name of the Service of a node's kubelet API: a DNS label that is unique for each node. Takes (list ROOT NODE-NAME). */}}
{{- define "graftlet.kubeletService" -}}
{{- $node := index . 1 -}}
{{- $name := printf "%s-kubelet-%s" (include "graftlet.fullname" (index . 0)) $node -}}
{{- if or (contains "." $node) (gt (len $name) 63) -}}
{{- $name = printf "%s-%s" ($name | replace "." "-" | trunc 54 | trimSuffix "-") (sha256sum $node | trunc 8) -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{/* The names of the Services of nodes' kubelet APIs, as a JSON map to the nodes' names. Takes (list ROOT NODE-NAMES). */}}
{{- define "graftlet.kubeletServices" -}}
{{- $root := index . 0 -}}
{{- $services := dict -}}
{{- range index . 1 }}{{ $_ := set $services (include "graftlet.kubeletService" (list $root .)) . }}{{ end -}}
{{- toJson $services -}}
{{- end -}}

{{/* Names of the nodes whose pods are reached over the link, or may be later, as JSON. */}}
{{- define "graftlet.tunneledNames" -}}
{{- $networks := include "graftlet.networks" . | fromJson -}}
{{- $names := list -}}
{{- range include "graftlet.nodes" . | fromJsonArray }}{{ if has (get $networks .name) (list "auto" "tunneled") }}{{ $names = append $names .name }}{{ end }}{{ end -}}
{{- toJson $names -}}
{{- end -}}

{{/* The tunnel of the API servers to the nodes: auto, none, or the platform whose tunnel it is. */}}
{{- define "graftlet.egressTunnel" -}}
{{ ternary .Values.platform .Values.egressTunnel (and (eq .Values.egressTunnel "auto") (has .Values.platform (list "k3s" "rke2"))) }}
{{- end -}}

{{/* "true" if API servers reach the nodes through tunnels. */}}
{{- define "graftlet.egressTunnels" -}}
{{- $wanted := include "graftlet.egressTunnel" . -}}
{{- if or (has $wanted (list "k3s" "rke2")) (and (eq $wanted "auto") (regexMatch "\\+(k3s|rke2)" .Capabilities.KubeVersion.Version)) }}true{{ end -}}
{{- end -}}

{{/* API version of the cluster's MutatingAdmissionPolicy, if any. */}}
{{- define "graftlet.mutatingPolicies" -}}
{{- range list "v1" "v1beta1" -}}
{{- if $.Capabilities.APIVersions.Has (printf "admissionregistration.k8s.io/%s/MutatingAdmissionPolicy" .) }}admissionregistration.k8s.io/{{ . }}{{ break }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* "true" if pods of tunneled nodes are published as endpoints of Services. This excludes releases with local nodes: their Pod is in its
     machine's network, where the ports would be open to others. */}}
{{- define "graftlet.publishes" -}}
{{- $wanted := .Values.publishServices.enabled | toString -}}
{{- if and (include "graftlet.tunnels" .) (not (include "graftlet.local" .)) (or (eq $wanted "true") (and (eq $wanted "auto") (include "graftlet.mutatingPolicies" .))) }}true{{ end -}}
{{- end -}}

{{- define "graftlet.nodeNames" -}}
{{- $names := list -}}
{{- range include "graftlet.nodes" . | fromJsonArray }}{{ $names = append $names .name }}{{ end -}}
{{- toJson $names -}}
{{- end -}}

{{- /* The image that helm test runs. Its registry is the part before the first slash. */ -}}
{{- define "graftlet.testImage" -}}
{{- with .Values.global.imageRegistry }}{{ . }}/{{ regexReplaceAll "^[^/]*/" $.Values.test.image "" }}{{ else }}{{ .Values.test.image }}{{ end -}}
{{- end -}}

{{- define "graftlet.image" -}}
{{- $image := .Values.image -}}
{{- $name := printf "%s/%s" (.Values.global.imageRegistry | default $image.registry) $image.repository -}}
{{- if $image.digest -}}
{{ $name }}@{{ $image.digest }}
{{- else -}}
{{ $name }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}
