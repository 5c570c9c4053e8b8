import type * as k8s from "@kubernetes/client-node";
import { type WireDecisions, checkEach, checkFields } from "./field-decisions.ts";

export const envSource: WireDecisions<k8s.V1EnvVarSource> = {
  configMapKeyRef: "supported",
  fieldRef: "supported",
  fileKeyRef: "supported",
  resourceFieldRef: "supported",
  secretKeyRef: "supported",
};

const env: WireDecisions<k8s.V1EnvVar> = { name: "supported", value: "supported", valueFrom: checkFields(envSource) };

export const lifecycle: WireDecisions<k8s.V1Lifecycle> = {
  postStart: "supported",
  preStop: "supported",
  // Has no effect: its feature gate is off.
  stopSignal: "supported",
};

export const resources: WireDecisions<k8s.V1ResourceRequirements> = {
  claims: "supported",
  limits: "supported",
  requests: "supported",
};

export const volumeMount: WireDecisions<k8s.V1VolumeMount> = {
  mountPath: "supported",
  mountPropagation: "supported",
  name: "supported",
  readOnly: "supported",
  recursiveReadOnly: "supported",
  subPath: "supported",
  subPathExpr: "supported",
};

export const containerSecurityDecisions: WireDecisions<k8s.V1SecurityContext> = {
  allowPrivilegeEscalation: "supported",
  appArmorProfile: "supported",
  capabilities: "supported",
  privileged: "supported",
  procMount: "supported",
  readOnlyRootFilesystem: "supported",
  runAsGroup: "supported",
  runAsNonRoot: "supported",
  runAsUser: "supported",
  seLinuxOptions: "supported",
  seccompProfile: "supported",
  // Ignored on Linux.
  windowsOptions: "supported",
};

/** Decisions for containers and init containers; an init container with restartPolicy Always is a sidecar. */
export const container: WireDecisions<k8s.V1Container> = {
  args: "supported",
  command: "supported",
  env: checkEach(checkFields(env)),
  envFrom: "supported",
  image: "supported",
  imagePullPolicy: "supported",
  lifecycle: checkFields(lifecycle),
  livenessProbe: "supported",
  name: "supported",
  ports: "supported",
  readinessProbe: "supported",
  resizePolicy: "supported",
  resources: checkFields(resources),
  restartPolicy: "supported",
  restartPolicyRules: "supported",
  securityContext: checkFields(containerSecurityDecisions),
  startupProbe: "supported",
  stdin: "supported",
  stdinOnce: "supported",
  terminationMessagePath: "supported",
  terminationMessagePolicy: "supported",
  tty: "supported",
  volumeDevices: "supported",
  volumeMounts: checkEach(checkFields(volumeMount)),
  workingDir: "supported",
};

/** Decisions for ephemeral containers: the same as for containers. */
export const ephemeral: WireDecisions<k8s.V1EphemeralContainer> = { ...container, targetContainerName: "supported" };
