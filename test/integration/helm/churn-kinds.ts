import type { Cluster } from "../../harness/cluster.ts";
import type { Pod } from "../../../src/objects.ts";
import { podOn } from "./grafted-machine.ts";

/** A kind of pod that comes and goes: what a replica that serves its machine is in the middle of when it ends. */
export interface ChurnKind {
  readonly name: string;
  /** The only machine that it can be on; any if absent. */
  readonly machine?: string;
  /** @returns the pod, on a machine. */
  pod(name: string, machine: string): object;
  /** True once all has happened that is to happen before the pod is deleted. */
  isDone(pod: Pod): boolean;
  /** What is to be done once the pod runs. Repeated until it succeeds. */
  act?(name: string): Promise<unknown>;
}

/** A claim of a storage driver on a machine. */
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

/** Pods that only run, whose image is pulled each time, that are resized in place, that are evicted, and that use a volume of a driver. */
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
      // Each pod leaves its name: twice if its container has been started twice.
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
