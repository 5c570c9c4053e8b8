{{/* What the Deployment's Pod and those of the hooks have in common. */}}

{{/* The Pod's user. The secrets' files are readable by the group alone, which is the Pod's. */}}
{{- define "graftlet.podSecurity" -}}
{{- if include "graftlet.local" . -}}
# What serves the machine that it runs on has to be root there.
runAsUser: 0
runAsGroup: 0
{{- else -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
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
{{- range $index, $node := .Values.nodes }}
{{- if and .ssh .ssh.existingSecret }}
# One that is not there is that node's trouble alone: its files appear when it is made.
- name: ssh-{{ $index }}
  secret: { secretName: {{ .ssh.existingSecret | quote }}, optional: true, defaultMode: {{ ternary "0400" "0440" (not (empty (include "graftlet.local" $))) }} }
{{- end }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "graftlet.volumeMounts" -}}
- { name: configuration, mountPath: /etc/graftlet/configuration, readOnly: true }
- { name: state, mountPath: /var/lib/graftlet }
- { name: tmp, mountPath: /tmp }
{{- range $index, $node := .Values.nodes }}
{{- if and .ssh .ssh.existingSecret }}
- { name: ssh-{{ $index }}, mountPath: {{ include "graftlet.secretDirectory" . | quote }}, readOnly: true }
{{- end }}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}
