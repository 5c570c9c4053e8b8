{{/* Refuses what the schema cannot: rules across fields, in sentences. Rendered for that alone. */}}
{{- define "graftlet.check" -}}
{{- if not .Values.nodes }}{{ fail "nodes is empty: name a machine, such as --set nodes[0].name=edge-1 --set nodes[0].ssh.host=192.0.2.7 --set nodes[0].ssh.existingSecret=edge-1-ssh" }}{{ end -}}
{{- end -}}
