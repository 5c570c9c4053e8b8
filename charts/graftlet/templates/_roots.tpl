{{/* Nodes' root directories on their machines. */}}

{{/* The root directory of a node of the values. */}}
{{- define "graftlet.root" -}}
{{- .rootDir | default (dig "rootDir" "" (.ssh | default dict)) | default (printf "/var/lib/kubelet/%s" .name) -}}
{{- end -}}

{{/* The field that sets a node's root directory. */}}
{{- define "graftlet.rootField" -}}
{{- ternary "ssh.rootDir" "rootDir" (and (not .rootDir) (not (empty (dig "rootDir" "" (.ssh | default dict))))) -}}
{{- end -}}

{{/* Identifies a node's machine. All local nodes share the Pod's machine. */}}
{{- define "graftlet.machine" -}}
{{- if .local }}local{{ else }}{{ $ssh := .ssh | default dict }}{{ printf "%s %d" (include "graftlet.sshHost" .) ($ssh.port | default 22 | int) }}{{ end -}}
{{- end -}}

{{/* The root directories that the Pod mounts, as JSON, without those inside another one: mounting them again would leave mounts on the
     machine. */}}
{{- define "graftlet.localRoots" -}}
{{- $all := list -}}
{{- range include "graftlet.nodes" . | fromJsonArray }}{{ if .local }}{{ $all = append $all (include "graftlet.root" .) }}{{ end }}{{ end -}}
{{- $outermost := list -}}
{{- range $root := $all -}}
{{- $within := false -}}
{{- range $all }}{{ if hasPrefix (printf "%s/" .) $root }}{{ $within = true }}{{ end }}{{ end -}}
{{- if not $within }}{{ $outermost = append $outermost $root }}{{ end -}}
{{- end -}}
{{- toJson $outermost -}}
{{- end -}}

{{/* Checks that each node of a machine has its own root directory, which is not where another node stores files. Takes the root. */}}
{{- define "graftlet.check.roots" -}}
{{- $nodes := include "graftlet.nodes" . | fromJsonArray -}}
{{- range $index, $node := $nodes -}}
{{- $at := $node.at -}}
{{- include "graftlet.check.root" (dict "at" $at "node" $node) -}}
{{- $root := include "graftlet.root" $node -}}
{{- range $other, $of := $nodes -}}
{{- if and (ne $other $index) (eq (include "graftlet.machine" $node) (include "graftlet.machine" $of)) -}}
{{- $theirs := include "graftlet.root" $of -}}
{{- if and (lt $other $index) (eq $root $theirs) -}}
{{- printf "%s.%s: %s also has %s on that machine: give each node its own, or none" $at (include "graftlet.rootField" $node) $of.at $root | fail -}}
{{- end -}}
{{- $below := trimPrefix (printf "%s/" $theirs) $root | splitList "/" | first -}}
{{- if and (hasPrefix (printf "%s/" $theirs) $root) (has $below (list "checkpoints" "device-plugins" "graftlet" "pki" "plugins" "plugins_registry" "pod-resources" "pods")) -}}
{{- printf "%s.%s: %s stores its own files in %s: choose another directory" $at (include "graftlet.rootField" $node) $of.at $root | fail -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- include "graftlet.check.sameRoots" . -}}
{{- end -}}

{{- define "graftlet.check.root" -}}
{{- $root := .node.rootDir -}}
{{- if $root -}}
{{- if dig "rootDir" "" (.node.ssh | default dict) }}{{ printf "%s has both rootDir and ssh.rootDir: keep one of them" .at | fail }}{{ end -}}
{{- if not (and (regexMatch "^(/[a-zA-Z0-9_.@+-]+)+$" $root) (eq (clean $root) $root)) -}}
{{- printf "%s.rootDir %q is not a valid root directory: write an absolute path, such as /var/lib/kubelet" .at $root | fail -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Checks that an upgrade changes no node's root directory: the running pods and mounted volumes in the old one would be lost. */}}
{{- define "graftlet.check.sameRoots" -}}
{{- $nodes := include "graftlet.nodes" . | fromJsonArray -}}
{{- range include "graftlet.standing" . | fromJsonArray -}}
{{- $old := . -}}
{{- $config := $old.providerConfig | default dict -}}
{{- $had := $old.rootDir | default $config.rootDir | default (printf "/var/lib/kubelet/%s" $old.name) -}}
{{- range $node := $nodes -}}
{{- if and (eq $node.name $old.name) (eq (include "graftlet.sshHost" $node) ($config.host | default "")) (ne (include "graftlet.root" $node) $had) -}}
{{- printf "%s.%s: %s has %s, and an upgrade cannot move it to %s: keep it, or take the node out of nodes, remove it from its machine and add it again" $node.at (include "graftlet.rootField" $node) $node.name $had (include "graftlet.root" $node) | fail -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
