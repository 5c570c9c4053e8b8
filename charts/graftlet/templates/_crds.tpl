{{/* Fields of an sshd and its login, for the schema of GraftedNodes. */}}
{{- define "graftlet.crd.login" -}}
host: { type: string, minLength: 1, maxLength: 253, pattern: '^[A-Za-z0-9_.:%-]+$', description: Host name or address of the sshd. }
port: { type: integer, minimum: 1, maximum: 65535, description: The port of the sshd; the default is 22. }
user: { type: string, minLength: 1, maxLength: 256, description: The user to log in as; the default is root. }
secretRef:
  description: |
    A Secret of the object's namespace with ssh-privatekey (and ssh-passphrase, ssh-certificate) or ssh-password, and known_hosts unless
    the host key is given here.
  type: object
  required: [name]
  properties:
    name: { type: string, minLength: 1, maxLength: 253 }
hostKeyFingerprints: { type: array, minItems: 1, maxItems: 16, items: { type: string, maxLength: 128 } }
hostCertificateAuthorities: { type: array, minItems: 1, maxItems: 16, items: { type: string, maxLength: 16384 } }
{{- end -}}

{{/* Fields of spec.ssh of a GraftedNode. */}}
{{- define "graftlet.crd.ssh" -}}
{{ include "graftlet.crd.login" . }}
proxyJump:
  description: Jump hosts, each reached from the previous one; the machine is reached from the last.
  type: array
  maxItems: 8
  items:
    type: object
    required: [host]
    properties:
      {{- include "graftlet.crd.login" . | nindent 6 }}
reverse:
  description: |
    The machine connects to graftlet's listener with ssh -R. host is then only its name in known_hosts; the object's name unless given.
  type: object
  properties:
    authorizedKeys:
      description: "Public keys with which the machine connects; unless given, those in authorized_keys of the Secret, or of the enrolled machine."
      type: array
      minItems: 1
      maxItems: 16
      items: { type: string, minLength: 1, maxLength: 16384 }
proxy: { type: string, maxLength: 2048, description: "Proxy for the connection to the first machine, such as http://proxy.example:3128." }
runtime: { type: string, maxLength: 1024, description: "auto, or the path of the container runtime's socket on the machine." }
sudo: { type: string, enum: [auto, never] }
serviceNamespaces: { type: array, maxItems: 256, items: { type: string, maxLength: 63 }, description: "Namespaces whose Services pods of a tunneled node reach; all unless given." }
kubernetesService:
  description: Address of the API server for pods.
  type: object
  required: [host, port]
  properties:
    host: { type: string, maxLength: 253 }
    port: { type: integer, minimum: 1, maximum: 65535 }
cri: { type: object, x-kubernetes-preserve-unknown-fields: true, description: Fields of the cri provider. }
docker: { type: object, x-kubernetes-preserve-unknown-fields: true, description: Fields of the docker provider. }
{{- end -}}

{{/* Fields of the spec of a GraftedNode other than ssh. A pool can set them too. */}}
{{- define "graftlet.crd.machine" -}}
network: { type: string, enum: [isolated, tunneled, routed], description: How pods of the machine reach the cluster; tunneled unless given. }
daemonSets: { type: string, enum: [none, selected, all], description: DaemonSets whose pods run on the machine. }
labels: { type: object, maxProperties: 128, additionalProperties: { type: string, maxLength: 63 } }
annotations: { type: object, maxProperties: 128, additionalProperties: { type: string } }
taints:
  type: array
  maxItems: 64
  items:
    type: object
    required: [key, effect]
    properties:
      key: { type: string, maxLength: 317 }
      value: { type: string, maxLength: 63 }
      effect: { type: string, enum: [NoSchedule, PreferNoSchedule, NoExecute] }
defaultTaint: { type: boolean, description: "Whether the Node has the taint graftlet.dev/target=NAME:NoSchedule; true unless given." }
reserved: { type: object, maxProperties: 16, additionalProperties: { x-kubernetes-int-or-string: true }, description: Resources that pods cannot have. }
kubeletConfiguration: { type: object, x-kubernetes-preserve-unknown-fields: true, description: Fields of a KubeletConfiguration. }
driverTopologyKeys: { type: array, maxItems: 64, items: { type: string, maxLength: 253 } }
paused: { type: boolean, description: "True: graftlet disconnects from the machine; its pods keep running." }
deletionPolicy:
  description: |
    Effect of deleting the object. Drain (the default): pods end, the machine is cleaned, the Node is deleted. Release: the Node is
    deleted, containers keep running. Orphan: both stay.
  type: string
  enum: [Drain, Release, Orphan]
drainTimeout: { type: string, pattern: '^([0-9]+(h|m|s))+$', maxLength: 16, description: Time limit for the pods to end when the object is deleted; 15m unless given. }
terminationGracePeriod: { type: string, pattern: '^([0-9]+(h|m|s))+$', maxLength: 16, description: "Additional time, after drainTimeout, to clean the machine; then the Node is deleted even if the machine is not clean. 1h unless given." }
{{- end -}}

{{/* Schema of an object's owner. Takes its description. */}}
{{- define "graftlet.crd.owner" -}}
description: {{ . }}
type: object
required: [replica, uid, epoch]
properties:
  replica: { type: string, maxLength: 253, description: "Name of its Pod, or of its ServiceAccount outside the cluster; empty while the object is handed over." }
  uid: { type: string, maxLength: 64 }
  epoch: { type: integer, format: int64, minimum: 1, description: Grows by one each time that a replica takes the object. }
  since: { type: string, format: date-time }
  unreachedBy:
    description: The replica from which the machine was taken because only that one did not reach it; counts in this epoch.
    type: object
    required: [uid, epoch]
    properties:
      uid: { type: string, maxLength: 64 }
      epoch: { type: integer, format: int64, minimum: 1 }
{{- end -}}

{{/* Schema of a condition. */}}
{{- define "graftlet.crd.condition" -}}
type: object
required: [type, status, reason, message, lastTransitionTime]
properties:
  type: { type: string, maxLength: 316 }
  status: { type: string, enum: ["True", "False", Unknown] }
  reason: { type: string, minLength: 1, maxLength: 1024 }
  message: { type: string, maxLength: 32768 }
  observedGeneration: { type: integer, format: int64 }
  lastTransitionTime: { type: string, format: date-time }
{{- end -}}

{{/* Metadata of a CustomResourceDefinition, except its name. */}}
{{- define "graftlet.crd.metadata" -}}
labels: {{- include "graftlet.labels" . | nindent 2 }}
{{- if .Values.crds.keep }}
annotations:
  # Deleting the CustomResourceDefinitions would delete all GraftedNodes, and remove their machines from the clusters.
  helm.sh/resource-policy: keep
{{- end }}
{{- end -}}
