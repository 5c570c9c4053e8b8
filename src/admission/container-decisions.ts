import type * as k8s from "@kubernetes/client-node";
import type { Wire } from "../objects.ts";
import { type Decisions, eachOf, fieldsOf, held } from "./decisions.ts";

type Fields<Type> = Decisions<Wire<Type>>;

export const envSource: Fields<k8s.V1EnvVarSource> = {
  configMapKeyRef: "served",
  fieldRef: "served",
  fileKeyRef: "served",
  resourceFieldRef: "served",
  secretKeyRef: "served",
};

const env: Fields<k8s.V1EnvVar> = { name: "served", value: "served", valueFrom: fieldsOf(envSource) };

export const lifecycle: Fields<k8s.V1Lifecycle> = {
  postStart: "served",
  preStop: "served",
  // Has no effect: its feature gate is off.
  stopSignal: "served",
};

export const resources: Fields<k8s.V1ResourceRequirements> = {
  claims: held("dynamic resource allocation is not supported yet"),
  limits: "served",
  requests: "served",
};

export const volumeMount: Fields<k8s.V1VolumeMount> = {
  mountPath: "served",
  mountPropagation: "served",
  name: "served",
  readOnly: "served",
  recursiveReadOnly: "served",
  subPath: "served",
  subPathExpr: "served",
};

export const containerSecurity: Fields<k8s.V1SecurityContext> = {
  allowPrivilegeEscalation: "served",
  appArmorProfile: "served",
  capabilities: "served",
  privileged: "served",
  procMount: "served",
  readOnlyRootFilesystem: "served",
  runAsGroup: "served",
  runAsNonRoot: "served",
  runAsUser: "served",
  seLinuxOptions: "served",
  seccompProfile: "served",
  // Ignored on Linux.
  windowsOptions: "served",
};

/** Also for init containers; one with a restart policy of its own is a sidecar. */
export const container: Fields<k8s.V1Container> = {
  args: "served",
  command: "served",
  env: eachOf(fieldsOf(env)),
  envFrom: "served",
  image: "served",
  imagePullPolicy: "served",
  lifecycle: fieldsOf(lifecycle),
  livenessProbe: "served",
  name: "served",
  ports: "served",
  readinessProbe: "served",
  resizePolicy: "served",
  resources: fieldsOf(resources),
  restartPolicy: "served",
  restartPolicyRules: "served",
  securityContext: fieldsOf(containerSecurity),
  startupProbe: "served",
  stdin: "served",
  stdinOnce: "served",
  terminationMessagePath: "served",
  terminationMessagePolicy: "served",
  tty: "served",
  volumeDevices: "served",
  volumeMounts: eachOf(fieldsOf(volumeMount)),
  workingDir: "served",
};

/** Fields that ephemeral containers share with containers get the same decision. */
export const ephemeral: Fields<k8s.V1EphemeralContainer> = { ...container, targetContainerName: "served" };
