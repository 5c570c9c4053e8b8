import type { PersistentVolume, Volume } from "../../../src/objects.ts";
import { type Bench, directoryOf, rootDir, volumeBench } from "./volume-bench.ts";

/** A pod volume with the claim `data`. */
export const data: Volume = { name: "v", persistentVolumeClaim: { claimName: "data" } };

/** SHA-256 of `h`. */
const sum = "aaa9402664f1a41f40ebbc52c9993eb66aeb366602958fdfaa283b71e64db123";
/** The directory with the staging path. */
export const staged = `${rootDir}/plugins/kubernetes.io/csi/d/${sum}`;
/** The volume's directory in the pod. */
export const published = directoryOf("csi", "pv");

/** Bench with a claim bound to a volume of the driver `d`. */
export function bound(spec: NonNullable<PersistentVolume["spec"]> = {}, csi: object = {}): Bench {
  const bench = volumeBench();
  const metadata = { name: "data", namespace: "default", uid: "u" };
  bench.claims.set("data", { metadata, spec: { volumeName: "pv" }, status: { phase: "Bound" } });
  bench.volumes.set("pv", {
    metadata: { name: "pv" },
    spec: {
      claimRef: metadata,
      volumeMode: "Filesystem",
      accessModes: ["ReadWriteOnce"],
      csi: { driver: "d", volumeHandle: "h", ...csi },
      ...spec,
    },
  });
  return bench;
}

/** Advances through the retries of an unmount. */
export async function longer({ clock }: Bench): Promise<void> {
  for (let ms = 0; ms < 8_000; ms += 500) await clock.advance(500);
}
