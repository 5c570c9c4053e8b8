{{/* CEL that decodes a list of base64 digits, each as a number, to a list of bytes. Three of every four digits begin a byte. */}}
{{- define "graftlet.base64" -}}
{{ . }}.transformList(i, d, i % 4 < 3 && i + 1 < size({{ . }}),
  i % 4 == 0 ? d * 4 + {{ . }}[i + 1] / 16
  : i % 4 == 1 ? d % 16 * 16 + {{ . }}[i + 1] / 4
  : d % 4 * 64 + {{ . }}[i + 1])
{{- end -}}

{{/* CEL that converts the text in a variable to a list of bytes. The text has the characters of node names: lower-case letters, digits
     and -./: */}}
{{- define "graftlet.ascii" -}}
{{ . }}.split('').map(c, c >= 'a' ? 97 + 'abcdefghijklmnopqrstuvwxyz'.indexOf(c) : 45 + '-./0123456789:'.indexOf(c))
{{- end -}}

{{/* Variables that parse the request of a CertificateSigningRequest, because CEL has no function for PKCS #10. Takes the object. The
     request is DER in PEM, which the API shows in base64. The text is decoded to a list of numbers. The position of the subject follows
     from what is before it (two lengths and a version), which can have only a few forms; a request with any other form is rejected. */}}
{{- define "graftlet.request.variables" -}}
- name: alphabet
  expression: |
    'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/'
- name: outer
  expression: |
    dyn({{ . }}.spec.request).replace('=', '').split('').map(c, variables.alphabet.indexOf(c))
- name: pem
  expression: |
    {{- include "graftlet.base64" "variables.outer" | nindent 4 }}
# The text between "-----BEGIN CERTIFICATE REQUEST-----\n" and "-----END CERTIFICATE REQUEST-----\n", without newlines.
- name: body
  expression: |
    variables.pem.transformList(i, b, i >= 36 && i < size(variables.pem) - 34 && b != 10 && b != 61, b)
- name: inner
  expression: |
    variables.body.map(b, b > 96 ? b - 71 : b > 64 ? b - 65 : b > 47 ? b + 4 : b == 43 ? 62 : 63)
- name: der
  expression: |
    {{- include "graftlet.base64" "variables.inner" | nindent 4 }}
# Positions: of the inner of the two sequences with which the DER begins, and of the version, with which the inner one begins.
- name: second
  expression: |
    variables.der[1] == 130 ? 4 : 3
- name: version
  expression: |
    variables.second + (variables.der[variables.second + 1] == 130 ? 4 : 3)
- name: subject
  expression: |
    variables.der.transformList(i, b,
    i >= variables.version + 3 && i < variables.version + 5 + variables.der[variables.version + 4], b)
{{- end -}}

{{/* CEL that is true if a request is a single PEM block. Takes the object. */}}
{{- define "graftlet.request.isBlock" -}}
size(dyn({{ . }}.spec.request)) < 4096 &&
dyn({{ . }}.spec.request).startsWith({{ "-----BEGIN CERTIFICATE REQUEST-----\n" | b64enc | squote }}) &&
variables.body.all(b, (b > 96 && b < 123) || (b > 64 && b < 91) || (b > 46 && b < 58) || b == 43)
{{- end -}}

{{/* CEL that is true if the subject is at the expected position. */}}
{{- define "graftlet.request.hasSubject" -}}
variables.der[0] == 48 && variables.der[1] in [129, 130] &&
variables.der[variables.second] == 48 && variables.der[variables.second + 1] in [129, 130] &&
variables.der[variables.version] == 2 && variables.der[variables.version + 1] == 1 &&
variables.der[variables.version + 2] == 0
{{- end -}}

{{/* CEL of the subjects of nodes in DER: SEQUENCE of SET of SEQUENCE of 2.5.4.10 and "system:nodes", and the same of 2.5.4.3 and
     "system:node:NAME". Takes CEL of the names. */}}
{{- define "graftlet.subjects" -}}
{{ . }}.map(name, 'system:node:' + name).map(name,
  [48, 34 + size(name), 49, 21, 48, 19, 6, 3, 85, 4, 10, 19, 12,
   115, 121, 115, 116, 101, 109, 58, 110, 111, 100, 101, 115,
   49, 9 + size(name), 48, 7 + size(name), 6, 3, 85, 4, 3, 19, size(name)] +
  {{ include "graftlet.ascii" "name" }})
{{- end -}}

{{/* CEL of the UID or name of the Pod to which the request's token is bound, or of that Pod's node, as a list; empty if the token is not
     bound to a Pod. Takes pod-uid, pod-name or node-name. */}}
{{- define "graftlet.asking" -}}
request.userInfo.?extra[?'authentication.kubernetes.io/{{ . }}'].orValue([])
{{- end -}}

{{/* Validation that a request comes with a token of the Deployment's Pod. Pods on the release's own nodes are not graftlet's. Other
     policies, which have the Pods as parameters and skip tokens of other Pods, compare the request with that one Pod. */}}
{{- define "graftlet.asking.validation" -}}
- expression: |
    {{- if include "graftlet.hasOutside" . }}
    request.userInfo.username in {{ include "graftlet.outsideUsers" . }} ||
    {{- end }}
    size({{ include "graftlet.asking" "pod-uid" }}) == 1 &&
    {{ include "graftlet.asking" "pod-name" }}.exists(pod, pod.startsWith('{{ include "graftlet.fullname" . }}-')) &&
    {{ include "graftlet.asking" "node-name" }}.exists(node, !({{ include "graftlet.isOwn" (list . "node" (include "graftlet.nodeNames" .)) }}))
  message: {{ printf "graftlet's account may do this only with the token of a Pod of Deployment %s" (include "graftlet.fullname" .) | quote }}
  reason: Forbidden
{{- end -}}

{{/* Conditions of a policy that has the Deployment's Pods as parameters. There may be several, such as evicted Pods and those of lost
     nodes: the policy applies only to the Pod whose token is used. */}}
{{- define "graftlet.asking.conditions" -}}
- name: of-this-release
  expression: request.userInfo.username == '{{ include "graftlet.account" . }}'
- name: of-the-pod-that-asks
  expression: |
    params.metadata.uid in {{ include "graftlet.asking" "pod-uid" }}
{{- end -}}

{{/* Validation that the requesting Pod has not ended. */}}
{{- define "graftlet.asking.isRunning" -}}
- expression: |
    !(params.status.?phase.orValue('') in ['Succeeded', 'Failed'])
  message: graftlet's account may do this only with the token of a Pod that has not ended
  reason: Forbidden
{{- end -}}

{{/* Parameters of a policy that has the Deployment's Pods as parameters. Without `Allow`, missing parameters would deny everybody's
     requests, before any condition is evaluated: a release without a Pod would block the cluster's own controllers. */}}
{{- define "graftlet.asking.params" -}}
paramRef:
  namespace: {{ include "graftlet.namespace" . }}
  selector:
    matchLabels: {{- include "graftlet.selectorLabels" . | nindent 6 }}
  parameterNotFoundAction: Allow
{{- end -}}

{{/* Variables of a request for a serving certificate that is about to be approved. They follow "graftlet.request.variables". */}}
{{- define "graftlet.approvals.variables" -}}
# The name of the requesting node, as a list; empty if it is not a node of the release.
- name: nodes
  expression: |
    {{- if .Values.fleet.enabled }}
    [oldObject.spec.?username.orValue('')].filter(user, user.startsWith('system:node:')).map(user, user.substring(12))
      .filter(name, {{ include "graftlet.isOwn" (list . "name" (include "graftlet.approvedNames" .)) }})
    {{- else }}
    {{ include "graftlet.approvedNames" . }}.filter(name, oldObject.spec.?username.orValue('') == 'system:node:' + name)
    {{- end }}
# Positions: of the key, which follows the subject, and of the end of the signed part.
- name: key
  expression: |
    variables.version + 5 + variables.der[variables.version + 4]
- name: end
  expression: |
    variables.version + (variables.der[variables.second + 1] == 130
      ? variables.der[variables.second + 2] * 256 + variables.der[variables.second + 3]
      : variables.der[variables.second + 2])
# The key has 91 bytes. It is followed by the attributes: a single one, with a single extension, 2.5.29.17 (subjectAltName).
- name: attributes
  expression: |
    variables.der.transformList(i, b, i >= variables.key + 91 && i < variables.end, b)
- name: wanted
  expression: |
    variables.attributes.transformList(i, b, i >= 30, b)
# The node's name as encoded in that extension, where DNS names begin with 130 and addresses with 135.
- name: named
  expression: |
    variables.nodes.map(name, [130, size(name)] + {{ include "graftlet.ascii" "name" }})
{{- end -}}
