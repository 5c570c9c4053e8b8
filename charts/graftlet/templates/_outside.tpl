{{/* Replicas outside the cluster: each has a ServiceAccount, whose UID begins the UID of the replica. */}}

{{/* The replicas outside the cluster, as JSON: {name, account, addresses, firstPort} for each. No Pod has the name of an account: Pods'
     names have no dot. */}}
{{- define "graftlet.outside" -}}
{{- $replicas := list -}}
{{- if .Values.fleet.enabled -}}
{{- range .Values.fleet.outsideReplicas -}}
{{- $replicas = append $replicas (dict "name" .name "account" (printf "%s.%s" (include "graftlet.fullname" $) .name) "addresses" .addresses "firstPort" (.firstPort | default 10350 | int)) -}}
{{- end -}}
{{- end -}}
{{- toJson $replicas -}}
{{- end -}}

{{/* Names of the users of the replicas outside the cluster, as JSON. */}}
{{- define "graftlet.outsideUsers" -}}
{{- $users := list -}}
{{- range include "graftlet.outside" . | fromJsonArray }}{{ $users = append $users (include "graftlet.outsideUser" (list $ .account)) }}{{ end -}}
{{- toJson $users -}}
{{- end -}}

{{/* Takes (list ROOT ACCOUNT). */}}
{{- define "graftlet.outsideUser" -}}
system:serviceaccount:{{ include "graftlet.namespace" (index . 0) }}:{{ index . 1 }}
{{- end -}}

{{/* "true" if there are any. */}}
{{- define "graftlet.hasOutside" -}}
{{- if include "graftlet.outside" . | fromJsonArray }}true{{ end -}}
{{- end -}}

{{/* CEL that is true for a request of one of the release's accounts: that of its Pods, and those of replicas outside the cluster. */}}
{{- define "graftlet.isAccount" -}}
{{- $account := include "graftlet.account" . -}}
{{- if include "graftlet.hasOutside" . -}}
request.userInfo.username in {{ prepend (include "graftlet.outsideUsers" . | fromJsonArray) $account | toJson }}
{{- else -}}
request.userInfo.username == '{{ $account }}'
{{- end -}}
{{- end -}}

{{/* CEL that is true if the requesting replica has a UID: that of its Pod, or outside the cluster one that begins with that of its account,
     which is followed by an ID of the process. Takes (list ROOT CEL-OF-THE-UID). */}}
{{- define "graftlet.isReplica" -}}
{{- $root := index . 0 -}}
{{- $uid := index . 1 -}}
{{- if include "graftlet.hasOutside" $root -}}
(request.userInfo.username in {{ include "graftlet.outsideUsers" $root }}
  ? {{ $uid }}.startsWith(request.userInfo.uid + '.')
  : {{ $uid }} in {{ include "graftlet.asking" "pod-uid" }})
{{- else -}}
{{ $uid }} in {{ include "graftlet.asking" "pod-uid" }}
{{- end -}}
{{- end -}}

{{/* The subjects of the bindings that give the release's accounts their permissions. */}}
{{- define "graftlet.subjectAccounts" -}}
- { kind: ServiceAccount, name: {{ include "graftlet.serviceAccount" . | quote }}, namespace: {{ include "graftlet.namespace" . | quote }} }
{{- range include "graftlet.outside" . | fromJsonArray }}
- { kind: ServiceAccount, name: {{ .account | quote }}, namespace: {{ include "graftlet.namespace" $ | quote }} }
{{- end }}
{{- end -}}

{{/* Configuration of a replica outside the cluster. Endpoints of Services, the listener and the health checks are those of Pods. Takes
     (list ROOT REPLICA). */}}
{{- define "graftlet.outsideConfiguration" -}}
{{- $root := index . 0 -}}
{{- $replica := index . 1 -}}
{{- $own := omit (include "graftlet.configuration" $root | fromYaml) "endpointsOwner" "endpointsNamespaces" "healthzBindAddress" "metricsPort" "pagePort" "nodeObjects" -}}
{{- $fleet := set (omit $own.fleet "listener") "outside" (pick $replica "addresses" "firstPort") -}}
{{- toYaml (set (set $own "healthzPort" 0) "fleet" $fleet) -}}
{{- end -}}

{{/* Rejects values of replicas outside the cluster that the schema accepts. */}}
{{- define "graftlet.check.outside" -}}
{{- $names := list -}}
{{- range $index, $replica := .Values.fleet.outsideReplicas -}}
{{- $at := printf "fleet.outsideReplicas[%d]" $index -}}
{{- if not (include "graftlet.shares" $) }}{{ printf "%s: only machines of GraftedNodes are shared with a replica outside the cluster: set fleet.enabled: true and kubeletAddress: service, and create nodes of the values as GraftedNodes" $at | fail }}{{ end -}}
{{- if has $replica.name $names }}{{ printf "%s.name: another replica is called %s: give each its own name" $at $replica.name | fail }}{{ end -}}
{{- $names = append $names $replica.name -}}
{{- range $replica.addresses -}}
{{- if not (regexMatch "^([0-9]{1,3}([.][0-9]{1,3}){3}|[0-9a-f:]*:[0-9a-f:.]*)$" .) }}{{ printf "%s.addresses: %q is not an IP address: write one at which the API server reaches the machine of the replica, such as 192.0.2.10" $at . | fail }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
