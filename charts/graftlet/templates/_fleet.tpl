{{/* Machines that are GraftedNode objects. The chart does not know their names, only patterns for them, and none of the chart's objects
     grows with their number. */}}

{{/* "true" if graftlet has machines to serve, or may have some later. */}}
{{- define "graftlet.serves" -}}
{{- if or (include "graftlet.nodes" . | fromJsonArray) .Values.fleet.enabled }}true{{ end -}}
{{- end -}}

{{/* "true" if graftlet shows its nodes as GraftedNodes, whose definition then is in the cluster. With a fleet it also runs when no node is
     left in the values, and deletes their objects. */}}
{{- define "graftlet.showsNodes" -}}
{{- if and .Values.nodeObjects (or .Values.fleet.enabled (and .Values.crds.enabled (include "graftlet.nodes" . | fromJsonArray))) }}true{{ end -}}
{{- end -}}

{{/* "true" if Pods of the release hand machines over to each other: all of its machines are GraftedNodes, whose addresses and certificates
     do not depend on the Pod. */}}
{{- define "graftlet.shares" -}}
{{- if and (include "graftlet.fleetServices" .) (not (include "graftlet.nodes" . | fromJsonArray)) }}true{{ end -}}
{{- end -}}

{{/* Port of the metrics of GraftedNodes and pools; empty if there are none. A Pod in its machine's own network opens no such port. */}}
{{- define "graftlet.metricsPort" -}}
{{- $wanted := .Values.monitoring.metricsPort -}}
{{- if kindIs "invalid" $wanted }}{{ $wanted = ternary 10249 0 .Values.monitoring.serviceMonitor.enabled }}{{ end -}}
{{- if and (int $wanted) (or .Values.fleet.enabled (include "graftlet.showsNodes" .)) (not (include "graftlet.local" .)) }}{{ int $wanted }}{{ end -}}
{{- end -}}

{{/* "true" if graftlet creates a Service for each GraftedNode, through which its kubelet API is reached. */}}
{{- define "graftlet.fleetServices" -}}
{{- if and .Values.fleet.enabled (eq .Values.kubeletAddress "service") }}true{{ end -}}
{{- end -}}

{{/* Converts a pattern of a name, with * as a wildcard, to an RE2 expression without anchors. */}}
{{- define "graftlet.nameExpression" -}}
{{ . | replace "." "[.]" | replace "*" "[a-z0-9.-]*" }}
{{- end -}}

{{/* The patterns of fleet.nodeNames, as one RE2 expression. */}}
{{- define "graftlet.fleetExpression" -}}
{{- $parts := list -}}
{{- range .Values.fleet.nodeNames }}{{ $parts = append $parts (include "graftlet.nameExpression" .) }}{{ end -}}
{{ printf "^(%s)$" (join "|" $parts) }}
{{- end -}}

{{/* CEL that is true if the node of a GraftedNode may have a name. Takes (list ROOT CEL-OF-THE-NAME). */}}
{{- define "graftlet.isFleets" -}}
{{- $name := index . 1 -}}
size({{ $name }}) < 64 && {{ $name }}.matches('{{ include "graftlet.fleetExpression" (index . 0) }}')
{{- end -}}

{{/* CEL that is true if a name is that of a node of the release: in a list, or allowed for GraftedNodes. Takes (list ROOT CEL-OF-THE-NAME
     NAMES), the names as JSON. */}}
{{- define "graftlet.isOwn" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- $names := index . 2 -}}
{{- if not $root.Values.fleet.enabled -}}
{{ $name }} in {{ $names }}
{{- else if $names | fromJsonArray -}}
({{ $name }} in {{ $names }} || {{ include "graftlet.isFleets" (list $root $name) }})
{{- else -}}
({{ include "graftlet.isFleets" (list $root $name) }})
{{- end -}}
{{- end -}}

{{/* Names the values that list the release's nodes, for messages. */}}
{{- define "graftlet.namedBy" -}}
{{- printf (ternary "nodes and fleet.nodeNames of release %s list them" "nodes of release %s lists them" .Values.fleet.enabled) .Release.Name -}}
{{- end -}}

{{/* "true" if the account approves serving certificates. */}}
{{- define "graftlet.approves" -}}
{{- if or (include "graftlet.approvedNames" . | fromJsonArray) (and .Values.fleet.enabled .Values.approveServingCertificates) }}true{{ end -}}
{{- end -}}

{{/* "true" if nodes are tunneled, or may become so. */}}
{{- define "graftlet.tunnels" -}}
{{- if or (include "graftlet.tunneledNames" . | fromJsonArray) .Values.fleet.enabled }}true{{ end -}}
{{- end -}}

{{/* "true" if nodes have certificates from the cluster's signer. */}}
{{- define "graftlet.certified" -}}
{{- if or (include "graftlet.namesOf" (list . "node") | fromJsonArray) .Values.fleet.enabled }}true{{ end -}}
{{- end -}}

{{/* The name of the node in the subject of a request, as a list with one name. It follows "graftlet.request.variables". A byte that no
     name has becomes _, which no pattern allows. For a subject of another form the name is arbitrary text, because the subject is
     compared as a whole. */}}
{{- define "graftlet.request.name" -}}
[variables.subject.transformList(i, b, i >= 48,
  b > 96 && b < 123 ? 'abcdefghijklmnopqrstuvwxyz'.charAt(b - 97)
  : b > 44 && b < 58 ? '-./0123456789'.charAt(b - 45) : '_').join('')]
{{- end -}}

{{/* Variables of a request for a serving certificate: the requested addresses as texts. They follow "graftlet.approvals.variables". */}}
{{- define "graftlet.approvals.addresses" -}}
- name: parts
  expression: |
    variables.named.map(name, variables.wanted.transformList(i, b, i >= size(name), b)).map(rest,
      size(rest) > rest[1] + 2
      ? [rest.transformList(i, b, i < rest[1] + 2, b), rest.transformList(i, b, i > rest[1] + 1, b)]
      : [rest])[0]
- name: texts
  expression: |
    variables.parts.map(part, size(part) == 6
      ? part.transformList(i, b, i > 1, string(b)).join('.')
      : part.transformList(i, b, i > 1 && i % 2 == 0, [b, part[i + 1]].map(byte,
          '0123456789abcdef'.charAt(byte / 16) + '0123456789abcdef'.charAt(byte % 16)).join('')).join(':'))
{{- end -}}

{{/* Rejects values of a fleet that the schema accepts. */}}
{{- define "graftlet.check.fleet" -}}
{{- $fleet := .Values.fleet -}}
{{- range $index, $pattern := $fleet.nodeNames -}}
{{- $at := printf "fleet.nodeNames[%d]" $index -}}
{{- if not (regexMatch "[a-z0-9]" $pattern) }}{{ printf "%s: %s would let graftlet's account become any node: write a part that all names have in common, such as edge-*" $at $pattern | fail }}{{ end -}}
{{- $expression := printf "^%s$" (include "graftlet.nameExpression" $pattern) -}}
{{- range list "kubernetes" "kubernetes.default" "kubernetes.default.svc" "kubernetes.default.svc.cluster.local" -}}
{{- if regexMatch $expression . }}{{ printf "%s: %s allows %s, which is a name of the API server: write a longer part, such as edge-*" $at $pattern . | fail }}{{ end -}}
{{- end -}}
{{- end -}}
{{- if and (gt (int .Values.replicas) 1) (not (include "graftlet.shares" .)) -}}
{{- if not $fleet.enabled }}{{ printf "replicas: only machines of GraftedNodes are shared between %d replicas: set fleet.enabled: true" (int .Values.replicas) | fail }}{{ end -}}
{{- if include "graftlet.nodes" . | fromJsonArray }}{{ printf "replicas: nodes of the values are served by one replica, not by %d: create them as GraftedNodes instead" (int .Values.replicas) | fail }}{{ end -}}
{{- printf "replicas: %d replicas need nodes whose address does not depend on a Pod: set kubeletAddress: service" (int .Values.replicas) | fail -}}
{{- end -}}
{{- include "graftlet.check.outside" . -}}
{{- if $fleet.enabled -}}
{{- if not $fleet.nodeNames }}{{ fail "fleet.nodeNames is empty: list the names that nodes of GraftedNodes may have, such as edge-*" }}{{ end -}}
{{- if eq .Values.platform "eks" }}{{ fail "fleet.enabled: GraftedNodes need client certificates, which EKS does not sign: list the machines in nodes" }}{{ end -}}
{{- if include "graftlet.local" . }}{{ fail "fleet.enabled: a Pod of nodes with local: true is in the machine's own network and controls its runtime: use a separate release for these nodes" }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* CEL that is true if an object belongs to a GraftedNode whose node may have its name. Takes (list ROOT CEL-OF-THE-OBJECT). */}}
{{- define "graftlet.ownedByMachine" -}}
{{ index . 1 }}.metadata.?ownerReferences.orValue([]).exists(owner, owner.kind == 'GraftedNode' &&
  owner.apiVersion.startsWith('graftlet.dev/') && {{ include "graftlet.isFleets" (list (index . 0) "owner.name") }})
{{- end -}}

{{/* CEL that is true if an EndpointSlice leads to a GraftedNode's kubelet API. Takes (list ROOT CEL-OF-THE-SLICE). */}}
{{- define "graftlet.isKubeletSlice" -}}
request.namespace == '{{ include "graftlet.namespace" (index . 0) }}' && {{ include "graftlet.ownedByMachine" . }}
{{- end -}}

{{/* "true" if the release may install the CustomResourceDefinition with a name: it does not exist, or belongs to the release. All
     releases of a cluster share one. Takes (list ROOT NAME). */}}
{{- define "graftlet.ownsDefinition" -}}
{{- $root := index . 0 -}}
{{- $there := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" (index . 1) | default dict -}}
{{- $annotations := dig "metadata" "annotations" dict $there -}}
{{- if or (not $there) (and (eq (get $annotations "meta.helm.sh/release-name") $root.Release.Name) (eq (get $annotations "meta.helm.sh/release-namespace") $root.Release.Namespace)) }}true{{ end -}}
{{- end -}}
