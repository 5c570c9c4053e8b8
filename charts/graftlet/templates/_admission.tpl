{{/* CEL that decodes a list of base64 digits, each a number, to a list of bytes: three of every four digits begin a byte. */}}
{{- define "graftlet.base64" -}}
{{ . }}.transformList(i, d, i % 4 < 3 && i + 1 < size({{ . }}),
  i % 4 == 0 ? d * 4 + {{ . }}[i + 1] / 16
  : i % 4 == 1 ? d % 16 * 16 + {{ . }}[i + 1] / 4
  : d % 4 * 64 + {{ . }}[i + 1])
{{- end -}}
