import assert from "node:assert/strict";
import type { Volume } from "../../src/objects.ts";
import type { AgentOptions } from "./agent.ts";
import { mount, mounts } from "./manifests.ts";
import { type Pods, shell, statusOf } from "./pods.ts";

/** The agent of the cluster that the tests of volumes share. */
export const volumesLab: AgentOptions = {
  args: ["-v=6"],
  config: {
    featureGates: { ClusterTrustBundleProjection: true, PodCertificateRequest: true, ImageVolumeWithDigest: true },
  },
};

/** Runs a script with volumes, each mounted at its name, and returns what it wrote. */
export function shown(pods: Pods, name: string, volumes: readonly Volume[], script: string): Promise<string> {
  return pods.output(name, shell(script, { volumeMounts: mounts(volumes) }), { volumes: [...volumes] });
}

/** Expects that a pod waits for its volume, and that an event says why. */
export async function waitsForVolume(pods: Pods, name: string, volume: Volume, why: string): Promise<void> {
  await pods.create(name, { volumes: [volume], containers: [{ volumeMounts: [mount(volume.name)] }] });
  const event = await pods.event(name, "FailedMount", `MountVolume.SetUp failed for volume "${volume.name}" : ${why}`);
  assert.equal(event.type, "Warning");
  const pod = await pods.until(name, "to wait", (one) => statusOf(one) !== undefined);
  assert.deepEqual([pod.status?.phase, statusOf(pod)?.state?.waiting?.reason], ["Pending", "ContainerCreating"]);
}
