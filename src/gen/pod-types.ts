// Written by tools/generate-pod-types.ts from @kubernetes/client-node.
/** Fields of each type below a pod's spec: [] leads the items of a list, {} the values of a map. */
export const podTypes: Readonly<Record<string, Readonly<Record<string, string>>>> = {
 "CoreV1ResourceClaim": {
  "name": "string",
  "request": "string"
 },
 "V1Affinity": {
  "nodeAffinity": "V1NodeAffinity",
  "podAffinity": "V1PodAffinity",
  "podAntiAffinity": "V1PodAntiAffinity"
 },
 "V1AppArmorProfile": {
  "localhostProfile": "string",
  "type": "string"
 },
 "V1AWSElasticBlockStoreVolumeSource": {
  "fsType": "string",
  "partition": "number",
  "readOnly": "boolean",
  "volumeID": "string"
 },
 "V1AzureDiskVolumeSource": {
  "cachingMode": "string",
  "diskName": "string",
  "diskURI": "string",
  "fsType": "string",
  "kind": "string",
  "readOnly": "boolean"
 },
 "V1AzureFileVolumeSource": {
  "readOnly": "boolean",
  "secretName": "string",
  "shareName": "string"
 },
 "V1Capabilities": {
  "add": "[]string",
  "drop": "[]string"
 },
 "V1CephFSVolumeSource": {
  "monitors": "[]string",
  "path": "string",
  "readOnly": "boolean",
  "secretFile": "string",
  "secretRef": "V1LocalObjectReference",
  "user": "string"
 },
 "V1CinderVolumeSource": {
  "fsType": "string",
  "readOnly": "boolean",
  "secretRef": "V1LocalObjectReference",
  "volumeID": "string"
 },
 "V1ClusterTrustBundleProjection": {
  "labelSelector": "V1LabelSelector",
  "name": "string",
  "optional": "boolean",
  "path": "string",
  "signerName": "string"
 },
 "V1ConfigMapEnvSource": {
  "name": "string",
  "optional": "boolean"
 },
 "V1ConfigMapKeySelector": {
  "key": "string",
  "name": "string",
  "optional": "boolean"
 },
 "V1ConfigMapProjection": {
  "items": "[]V1KeyToPath",
  "name": "string",
  "optional": "boolean"
 },
 "V1ConfigMapVolumeSource": {
  "defaultMode": "number",
  "items": "[]V1KeyToPath",
  "name": "string",
  "optional": "boolean"
 },
 "V1Container": {
  "args": "[]string",
  "command": "[]string",
  "env": "[]V1EnvVar",
  "envFrom": "[]V1EnvFromSource",
  "image": "string",
  "imagePullPolicy": "string",
  "lifecycle": "V1Lifecycle",
  "livenessProbe": "V1Probe",
  "name": "string",
  "ports": "[]V1ContainerPort",
  "readinessProbe": "V1Probe",
  "resizePolicy": "[]V1ContainerResizePolicy",
  "resources": "V1ResourceRequirements",
  "restartPolicy": "string",
  "restartPolicyRules": "[]V1ContainerRestartRule",
  "securityContext": "V1SecurityContext",
  "startupProbe": "V1Probe",
  "stdin": "boolean",
  "stdinOnce": "boolean",
  "terminationMessagePath": "string",
  "terminationMessagePolicy": "string",
  "tty": "boolean",
  "volumeDevices": "[]V1VolumeDevice",
  "volumeMounts": "[]V1VolumeMount",
  "workingDir": "string"
 },
 "V1ContainerPort": {
  "containerPort": "number",
  "hostIP": "string",
  "hostPort": "number",
  "name": "string",
  "protocol": "string"
 },
 "V1ContainerResizePolicy": {
  "resourceName": "string",
  "restartPolicy": "string"
 },
 "V1ContainerRestartRule": {
  "action": "string",
  "exitCodes": "V1ContainerRestartRuleOnExitCodes"
 },
 "V1ContainerRestartRuleOnExitCodes": {
  "operator": "string",
  "values": "[]number"
 },
 "V1CSIVolumeSource": {
  "driver": "string",
  "fsType": "string",
  "nodePublishSecretRef": "V1LocalObjectReference",
  "readOnly": "boolean",
  "volumeAttributes": "{}string"
 },
 "V1DownwardAPIProjection": {
  "items": "[]V1DownwardAPIVolumeFile"
 },
 "V1DownwardAPIVolumeFile": {
  "fieldRef": "V1ObjectFieldSelector",
  "mode": "number",
  "path": "string",
  "resourceFieldRef": "V1ResourceFieldSelector"
 },
 "V1DownwardAPIVolumeSource": {
  "defaultMode": "number",
  "items": "[]V1DownwardAPIVolumeFile"
 },
 "V1EmptyDirVolumeSource": {
  "medium": "string",
  "sizeLimit": "Quantity"
 },
 "V1EnvFromSource": {
  "configMapRef": "V1ConfigMapEnvSource",
  "prefix": "string",
  "secretRef": "V1SecretEnvSource"
 },
 "V1EnvVar": {
  "name": "string",
  "value": "string",
  "valueFrom": "V1EnvVarSource"
 },
 "V1EnvVarSource": {
  "configMapKeyRef": "V1ConfigMapKeySelector",
  "fieldRef": "V1ObjectFieldSelector",
  "fileKeyRef": "V1FileKeySelector",
  "resourceFieldRef": "V1ResourceFieldSelector",
  "secretKeyRef": "V1SecretKeySelector"
 },
 "V1EphemeralContainer": {
  "args": "[]string",
  "command": "[]string",
  "env": "[]V1EnvVar",
  "envFrom": "[]V1EnvFromSource",
  "image": "string",
  "imagePullPolicy": "string",
  "lifecycle": "V1Lifecycle",
  "livenessProbe": "V1Probe",
  "name": "string",
  "ports": "[]V1ContainerPort",
  "readinessProbe": "V1Probe",
  "resizePolicy": "[]V1ContainerResizePolicy",
  "resources": "V1ResourceRequirements",
  "restartPolicy": "string",
  "restartPolicyRules": "[]V1ContainerRestartRule",
  "securityContext": "V1SecurityContext",
  "startupProbe": "V1Probe",
  "stdin": "boolean",
  "stdinOnce": "boolean",
  "targetContainerName": "string",
  "terminationMessagePath": "string",
  "terminationMessagePolicy": "string",
  "tty": "boolean",
  "volumeDevices": "[]V1VolumeDevice",
  "volumeMounts": "[]V1VolumeMount",
  "workingDir": "string"
 },
 "V1EphemeralVolumeSource": {
  "volumeClaimTemplate": "V1PersistentVolumeClaimTemplate"
 },
 "V1ExecAction": {
  "command": "[]string"
 },
 "V1FCVolumeSource": {
  "fsType": "string",
  "lun": "number",
  "readOnly": "boolean",
  "targetWWNs": "[]string",
  "wwids": "[]string"
 },
 "V1FileKeySelector": {
  "key": "string",
  "optional": "boolean",
  "path": "string",
  "volumeName": "string"
 },
 "V1FlexVolumeSource": {
  "driver": "string",
  "fsType": "string",
  "options": "{}string",
  "readOnly": "boolean",
  "secretRef": "V1LocalObjectReference"
 },
 "V1FlockerVolumeSource": {
  "datasetName": "string",
  "datasetUUID": "string"
 },
 "V1GCEPersistentDiskVolumeSource": {
  "fsType": "string",
  "partition": "number",
  "pdName": "string",
  "readOnly": "boolean"
 },
 "V1GitRepoVolumeSource": {
  "directory": "string",
  "repository": "string",
  "revision": "string"
 },
 "V1GlusterfsVolumeSource": {
  "endpoints": "string",
  "path": "string",
  "readOnly": "boolean"
 },
 "V1GRPCAction": {
  "port": "number",
  "service": "string"
 },
 "V1HostAlias": {
  "hostnames": "[]string",
  "ip": "string"
 },
 "V1HostPathVolumeSource": {
  "path": "string",
  "type": "string"
 },
 "V1HTTPGetAction": {
  "host": "string",
  "httpHeaders": "[]V1HTTPHeader",
  "path": "string",
  "port": "IntOrString",
  "scheme": "string"
 },
 "V1HTTPHeader": {
  "name": "string",
  "value": "string"
 },
 "V1ImageVolumeSource": {
  "pullPolicy": "string",
  "reference": "string"
 },
 "V1ISCSIVolumeSource": {
  "chapAuthDiscovery": "boolean",
  "chapAuthSession": "boolean",
  "fsType": "string",
  "initiatorName": "string",
  "iqn": "string",
  "iscsiInterface": "string",
  "lun": "number",
  "portals": "[]string",
  "readOnly": "boolean",
  "secretRef": "V1LocalObjectReference",
  "targetPortal": "string"
 },
 "V1KeyToPath": {
  "key": "string",
  "mode": "number",
  "path": "string"
 },
 "V1LabelSelector": {
  "matchExpressions": "[]V1LabelSelectorRequirement",
  "matchLabels": "{}string"
 },
 "V1LabelSelectorRequirement": {
  "key": "string",
  "operator": "string",
  "values": "[]string"
 },
 "V1Lifecycle": {
  "postStart": "V1LifecycleHandler",
  "preStop": "V1LifecycleHandler",
  "stopSignal": "string"
 },
 "V1LifecycleHandler": {
  "exec": "V1ExecAction",
  "httpGet": "V1HTTPGetAction",
  "sleep": "V1SleepAction",
  "tcpSocket": "V1TCPSocketAction"
 },
 "V1LocalObjectReference": {
  "name": "string"
 },
 "V1ManagedFieldsEntry": {
  "apiVersion": "string",
  "fieldsType": "string",
  "fieldsV1": "any",
  "manager": "string",
  "operation": "string",
  "subresource": "string",
  "time": "string"
 },
 "V1NFSVolumeSource": {
  "path": "string",
  "readOnly": "boolean",
  "server": "string"
 },
 "V1NodeAffinity": {
  "preferredDuringSchedulingIgnoredDuringExecution": "[]V1PreferredSchedulingTerm",
  "requiredDuringSchedulingIgnoredDuringExecution": "V1NodeSelector"
 },
 "V1NodeSelector": {
  "nodeSelectorTerms": "[]V1NodeSelectorTerm"
 },
 "V1NodeSelectorRequirement": {
  "key": "string",
  "operator": "string",
  "values": "[]string"
 },
 "V1NodeSelectorTerm": {
  "matchExpressions": "[]V1NodeSelectorRequirement",
  "matchFields": "[]V1NodeSelectorRequirement"
 },
 "V1ObjectFieldSelector": {
  "apiVersion": "string",
  "fieldPath": "string"
 },
 "V1ObjectMeta": {
  "annotations": "{}string",
  "creationTimestamp": "string",
  "deletionGracePeriodSeconds": "number",
  "deletionTimestamp": "string",
  "finalizers": "[]string",
  "generateName": "string",
  "generation": "number",
  "labels": "{}string",
  "managedFields": "[]V1ManagedFieldsEntry",
  "name": "string",
  "namespace": "string",
  "ownerReferences": "[]V1OwnerReference",
  "resourceVersion": "string",
  "selfLink": "string",
  "uid": "string"
 },
 "V1OwnerReference": {
  "apiVersion": "string",
  "blockOwnerDeletion": "boolean",
  "controller": "boolean",
  "kind": "string",
  "name": "string",
  "uid": "string"
 },
 "V1PersistentVolumeClaimSpec": {
  "accessModes": "[]string",
  "dataSource": "V1TypedLocalObjectReference",
  "dataSourceRef": "V1TypedObjectReference",
  "resources": "V1VolumeResourceRequirements",
  "selector": "V1LabelSelector",
  "storageClassName": "string",
  "volumeAttributesClassName": "string",
  "volumeMode": "string",
  "volumeName": "string"
 },
 "V1PersistentVolumeClaimTemplate": {
  "metadata": "V1ObjectMeta",
  "spec": "V1PersistentVolumeClaimSpec"
 },
 "V1PersistentVolumeClaimVolumeSource": {
  "claimName": "string",
  "readOnly": "boolean"
 },
 "V1PhotonPersistentDiskVolumeSource": {
  "fsType": "string",
  "pdID": "string"
 },
 "V1PodAffinity": {
  "preferredDuringSchedulingIgnoredDuringExecution": "[]V1WeightedPodAffinityTerm",
  "requiredDuringSchedulingIgnoredDuringExecution": "[]V1PodAffinityTerm"
 },
 "V1PodAffinityTerm": {
  "labelSelector": "V1LabelSelector",
  "matchLabelKeys": "[]string",
  "mismatchLabelKeys": "[]string",
  "namespaceSelector": "V1LabelSelector",
  "namespaces": "[]string",
  "topologyKey": "string"
 },
 "V1PodAntiAffinity": {
  "preferredDuringSchedulingIgnoredDuringExecution": "[]V1WeightedPodAffinityTerm",
  "requiredDuringSchedulingIgnoredDuringExecution": "[]V1PodAffinityTerm"
 },
 "V1PodCertificateProjection": {
  "certificateChainPath": "string",
  "credentialBundlePath": "string",
  "keyPath": "string",
  "keyType": "string",
  "maxExpirationSeconds": "number",
  "signerName": "string",
  "userAnnotations": "{}string"
 },
 "V1PodDNSConfig": {
  "nameservers": "[]string",
  "options": "[]V1PodDNSConfigOption",
  "searches": "[]string"
 },
 "V1PodDNSConfigOption": {
  "name": "string",
  "value": "string"
 },
 "V1PodOS": {
  "name": "string"
 },
 "V1PodReadinessGate": {
  "conditionType": "string"
 },
 "V1PodResourceClaim": {
  "name": "string",
  "resourceClaimName": "string",
  "resourceClaimTemplateName": "string"
 },
 "V1PodSchedulingGate": {
  "name": "string"
 },
 "V1PodSchedulingGroup": {
  "podGroupName": "string"
 },
 "V1PodSecurityContext": {
  "appArmorProfile": "V1AppArmorProfile",
  "fsGroup": "number",
  "fsGroupChangePolicy": "string",
  "runAsGroup": "number",
  "runAsNonRoot": "boolean",
  "runAsUser": "number",
  "seLinuxChangePolicy": "string",
  "seLinuxOptions": "V1SELinuxOptions",
  "seccompProfile": "V1SeccompProfile",
  "supplementalGroups": "[]number",
  "supplementalGroupsPolicy": "string",
  "sysctls": "[]V1Sysctl",
  "windowsOptions": "V1WindowsSecurityContextOptions"
 },
 "V1PodSpec": {
  "activeDeadlineSeconds": "number",
  "affinity": "V1Affinity",
  "automountServiceAccountToken": "boolean",
  "containers": "[]V1Container",
  "dnsConfig": "V1PodDNSConfig",
  "dnsPolicy": "string",
  "enableServiceLinks": "boolean",
  "ephemeralContainers": "[]V1EphemeralContainer",
  "hostAliases": "[]V1HostAlias",
  "hostIPC": "boolean",
  "hostNetwork": "boolean",
  "hostPID": "boolean",
  "hostUsers": "boolean",
  "hostname": "string",
  "hostnameOverride": "string",
  "imagePullSecrets": "[]V1LocalObjectReference",
  "initContainers": "[]V1Container",
  "nodeName": "string",
  "nodeSelector": "{}string",
  "os": "V1PodOS",
  "overhead": "{}string",
  "preemptionPolicy": "string",
  "priority": "number",
  "priorityClassName": "string",
  "readinessGates": "[]V1PodReadinessGate",
  "resourceClaims": "[]V1PodResourceClaim",
  "resources": "V1ResourceRequirements",
  "restartPolicy": "string",
  "runtimeClassName": "string",
  "schedulerName": "string",
  "schedulingGates": "[]V1PodSchedulingGate",
  "schedulingGroup": "V1PodSchedulingGroup",
  "securityContext": "V1PodSecurityContext",
  "serviceAccount": "string",
  "serviceAccountName": "string",
  "setHostnameAsFQDN": "boolean",
  "shareProcessNamespace": "boolean",
  "subdomain": "string",
  "terminationGracePeriodSeconds": "number",
  "tolerations": "[]V1Toleration",
  "topologySpreadConstraints": "[]V1TopologySpreadConstraint",
  "volumes": "[]V1Volume"
 },
 "V1PortworxVolumeSource": {
  "fsType": "string",
  "readOnly": "boolean",
  "volumeID": "string"
 },
 "V1PreferredSchedulingTerm": {
  "preference": "V1NodeSelectorTerm",
  "weight": "number"
 },
 "V1Probe": {
  "exec": "V1ExecAction",
  "failureThreshold": "number",
  "grpc": "V1GRPCAction",
  "httpGet": "V1HTTPGetAction",
  "initialDelaySeconds": "number",
  "periodSeconds": "number",
  "successThreshold": "number",
  "tcpSocket": "V1TCPSocketAction",
  "terminationGracePeriodSeconds": "number",
  "timeoutSeconds": "number"
 },
 "V1ProjectedVolumeSource": {
  "defaultMode": "number",
  "sources": "[]V1VolumeProjection"
 },
 "V1QuobyteVolumeSource": {
  "group": "string",
  "readOnly": "boolean",
  "registry": "string",
  "tenant": "string",
  "user": "string",
  "volume": "string"
 },
 "V1RBDVolumeSource": {
  "fsType": "string",
  "image": "string",
  "keyring": "string",
  "monitors": "[]string",
  "pool": "string",
  "readOnly": "boolean",
  "secretRef": "V1LocalObjectReference",
  "user": "string"
 },
 "V1ResourceFieldSelector": {
  "containerName": "string",
  "divisor": "Quantity",
  "resource": "string"
 },
 "V1ResourceRequirements": {
  "claims": "[]CoreV1ResourceClaim",
  "limits": "{}Quantity",
  "requests": "{}Quantity"
 },
 "V1ScaleIOVolumeSource": {
  "fsType": "string",
  "gateway": "string",
  "protectionDomain": "string",
  "readOnly": "boolean",
  "secretRef": "V1LocalObjectReference",
  "sslEnabled": "boolean",
  "storageMode": "string",
  "storagePool": "string",
  "system": "string",
  "volumeName": "string"
 },
 "V1SeccompProfile": {
  "localhostProfile": "string",
  "type": "string"
 },
 "V1SecretEnvSource": {
  "name": "string",
  "optional": "boolean"
 },
 "V1SecretKeySelector": {
  "key": "string",
  "name": "string",
  "optional": "boolean"
 },
 "V1SecretProjection": {
  "items": "[]V1KeyToPath",
  "name": "string",
  "optional": "boolean"
 },
 "V1SecretVolumeSource": {
  "defaultMode": "number",
  "items": "[]V1KeyToPath",
  "optional": "boolean",
  "secretName": "string"
 },
 "V1SecurityContext": {
  "allowPrivilegeEscalation": "boolean",
  "appArmorProfile": "V1AppArmorProfile",
  "capabilities": "V1Capabilities",
  "privileged": "boolean",
  "procMount": "string",
  "readOnlyRootFilesystem": "boolean",
  "runAsGroup": "number",
  "runAsNonRoot": "boolean",
  "runAsUser": "number",
  "seLinuxOptions": "V1SELinuxOptions",
  "seccompProfile": "V1SeccompProfile",
  "windowsOptions": "V1WindowsSecurityContextOptions"
 },
 "V1SELinuxOptions": {
  "level": "string",
  "role": "string",
  "type": "string",
  "user": "string"
 },
 "V1ServiceAccountTokenProjection": {
  "audience": "string",
  "expirationSeconds": "number",
  "path": "string"
 },
 "V1SleepAction": {
  "seconds": "number"
 },
 "V1StorageOSVolumeSource": {
  "fsType": "string",
  "readOnly": "boolean",
  "secretRef": "V1LocalObjectReference",
  "volumeName": "string",
  "volumeNamespace": "string"
 },
 "V1Sysctl": {
  "name": "string",
  "value": "string"
 },
 "V1TCPSocketAction": {
  "host": "string",
  "port": "IntOrString"
 },
 "V1Toleration": {
  "effect": "string",
  "key": "string",
  "operator": "string",
  "tolerationSeconds": "number",
  "value": "string"
 },
 "V1TopologySpreadConstraint": {
  "labelSelector": "V1LabelSelector",
  "matchLabelKeys": "[]string",
  "maxSkew": "number",
  "minDomains": "number",
  "nodeAffinityPolicy": "string",
  "nodeTaintsPolicy": "string",
  "topologyKey": "string",
  "whenUnsatisfiable": "string"
 },
 "V1TypedLocalObjectReference": {
  "apiGroup": "string",
  "kind": "string",
  "name": "string"
 },
 "V1TypedObjectReference": {
  "apiGroup": "string",
  "kind": "string",
  "name": "string",
  "namespace": "string"
 },
 "V1Volume": {
  "awsElasticBlockStore": "V1AWSElasticBlockStoreVolumeSource",
  "azureDisk": "V1AzureDiskVolumeSource",
  "azureFile": "V1AzureFileVolumeSource",
  "cephfs": "V1CephFSVolumeSource",
  "cinder": "V1CinderVolumeSource",
  "configMap": "V1ConfigMapVolumeSource",
  "csi": "V1CSIVolumeSource",
  "downwardAPI": "V1DownwardAPIVolumeSource",
  "emptyDir": "V1EmptyDirVolumeSource",
  "ephemeral": "V1EphemeralVolumeSource",
  "fc": "V1FCVolumeSource",
  "flexVolume": "V1FlexVolumeSource",
  "flocker": "V1FlockerVolumeSource",
  "gcePersistentDisk": "V1GCEPersistentDiskVolumeSource",
  "gitRepo": "V1GitRepoVolumeSource",
  "glusterfs": "V1GlusterfsVolumeSource",
  "hostPath": "V1HostPathVolumeSource",
  "image": "V1ImageVolumeSource",
  "iscsi": "V1ISCSIVolumeSource",
  "name": "string",
  "nfs": "V1NFSVolumeSource",
  "persistentVolumeClaim": "V1PersistentVolumeClaimVolumeSource",
  "photonPersistentDisk": "V1PhotonPersistentDiskVolumeSource",
  "portworxVolume": "V1PortworxVolumeSource",
  "projected": "V1ProjectedVolumeSource",
  "quobyte": "V1QuobyteVolumeSource",
  "rbd": "V1RBDVolumeSource",
  "scaleIO": "V1ScaleIOVolumeSource",
  "secret": "V1SecretVolumeSource",
  "storageos": "V1StorageOSVolumeSource",
  "vsphereVolume": "V1VsphereVirtualDiskVolumeSource"
 },
 "V1VolumeDevice": {
  "devicePath": "string",
  "name": "string"
 },
 "V1VolumeMount": {
  "mountPath": "string",
  "mountPropagation": "string",
  "name": "string",
  "readOnly": "boolean",
  "recursiveReadOnly": "string",
  "subPath": "string",
  "subPathExpr": "string"
 },
 "V1VolumeProjection": {
  "clusterTrustBundle": "V1ClusterTrustBundleProjection",
  "configMap": "V1ConfigMapProjection",
  "downwardAPI": "V1DownwardAPIProjection",
  "podCertificate": "V1PodCertificateProjection",
  "secret": "V1SecretProjection",
  "serviceAccountToken": "V1ServiceAccountTokenProjection"
 },
 "V1VolumeResourceRequirements": {
  "limits": "{}Quantity",
  "requests": "{}Quantity"
 },
 "V1VsphereVirtualDiskVolumeSource": {
  "fsType": "string",
  "storagePolicyID": "string",
  "storagePolicyName": "string",
  "volumePath": "string"
 },
 "V1WeightedPodAffinityTerm": {
  "podAffinityTerm": "V1PodAffinityTerm",
  "weight": "number"
 },
 "V1WindowsSecurityContextOptions": {
  "gmsaCredentialSpec": "string",
  "gmsaCredentialSpecName": "string",
  "hostProcess": "boolean",
  "runAsUserName": "string"
 }
};
