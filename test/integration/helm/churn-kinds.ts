import type { Cluster } from "../../harness/cluster.ts";
import type { Pod } from "../../../src/objects.ts";
import { podOn } from "./grafted-machine.ts";

/** A kind of pod that comes and goes. With each kind, a replica may be killed in the middle of something else. */
export interface ChurnKind {
  readonly name: string;
  /** The only machine that its pods can run on; any machine if absent. */
  readonly machine?: string;
  /** @returns the pod, on a machine. */
  pod(name: string, machine: string): object;
  /** True once the pod may be deleted. */
  isDone(pod: Pod): boolean;
  /** Changes the running pod; called again until it succeeds. */
  act?(name: string): Promise<unknown>;
}

/** A PersistentVolumeClaim whose volume exists on one machine only. */
export interface ChurnClaim {
  readonly machine: string;
  readonly claim: string;
}

type Spec = ReturnType<typeof podOn>["spec"];

/** A pod whose container and volumes differ from those of `podOn`. */
function podWith(name: string, machine: string, container: object, more: object = {}) {
  const { spec, ...pod } = podOn(machine);
  const [usual] = spec.containers;
  const merged = { ...spec, containers: [{ ...usual, ...container }], ...more } as Spec;
  return { ...pod, metadata: { name }, spec: merged };
}

const isRunning = ({ status }: Pod): boolean => status?.phase === "Running";
const sleeping = (script: string) => ["sh", "-c", `${script}; exec sleep 3600`];

/** Kinds of pods: plain ones, and pods whose image is pulled each time, that are resized in place, that are evicted, and that use a CSI
 *  volume. */
export function churnKinds(cluster: Cluster, { machine, claim }: ChurnClaim): readonly ChurnKind[] {
  const [before, after] = ["100m", "150m"].map((cpu) => ({ requests: { cpu: "50m" }, limits: { cpu } }));
  const resize = JSON.stringify({ spec: { containers: [{ name: "c", resources: after }] } });
  return [
    { name: "plain", pod: (name, on) => podWith(name, on, {}), isDone: isRunning },
    { name: "pulled", pod: (name, on) => podWith(name, on, { imagePullPolicy: "Always" }), isDone: isRunning },
    {
      name: "resized",
      pod: (name, on) => podWith(name, on, { resources: before }),
      act: (name) => cluster.mustKubectl(["patch", "pod", name, "--subresource=resize", `--patch=${resize}`]),
      isDone({ status }) {
        const [shown] = status?.containerStatuses ?? [];
        return shown?.resources?.limits?.["cpu"] === after?.limits.cpu && shown?.restartCount === 0;
      },
    },
    {
      name: "evicted",
      pod: (name, on) =>
        podWith(
          name,
          on,
          {
            command: sleeping("dd if=/dev/zero of=/full/it bs=1M count=3 2>/dev/null"),
            volumeMounts: [{ name: "full", mountPath: "/full" }],
          },
          { volumes: [{ name: "full", emptyDir: { sizeLimit: "1Mi" } }] },
        ),
      isDone: ({ status }) => status?.phase === "Failed" && status.reason === "Evicted",
    },
    {
      name: "stored",
      machine,
      // Each pod appends its name to a file: twice, if its container were started twice.
      pod: (name, on) =>
        podWith(
          name,
          on,
          { command: sleeping("hostname >>/kept/names"), volumeMounts: [{ name: "kept", mountPath: "/kept" }] },
          { volumes: [{ name: "kept", persistentVolumeClaim: { claimName: claim } }] },
        ),
      isDone: isRunning,
    },
  ];
}
