import type { ContainerLabels } from "../host/selinux.ts";
import type { Clock } from "../lib/clock.ts";
import { CodedError } from "../lib/errors.ts";
import type { PersistentVolume, Pod } from "../objects.ts";
import { allContainers } from "../pod/containers.ts";
import { effectiveSecurityContext } from "../pod/security.ts";

export type SELinuxOptions = NonNullable<ReturnType<typeof effectiveSecurityContext>["seLinuxOptions"]>;

/** Number of categories of a policy. */
const categories = 1024;

/** The seLinuxOptions of the containers that mount a volume of the pod. */
export function optionsOfVolume(pod: Pod, volume: string): readonly SELinuxOptions[] {
  return allContainers(pod).flatMap(({ container }) => {
    const options = effectiveSecurityContext(pod, container).seLinuxOptions;
    const count = container.volumeMounts?.filter(({ name }) => name === volume).length ?? 0;
    return options && count > 0 ? [options] : [];
  });
}

/** The label of files for a container with these options: user and level as requested, the rest from the target's policy. Empty if
 *  nothing is requested. A level that is not requested is random, as in the kubelet.
 *  @throws CodedError in the kubelet's words for an invalid label of the policy. */
export function fileLabel(labels: ContainerLabels, options: SELinuxOptions, randomLevel: () => string): string {
  const { user = "", role = "", type = "", level = "" } = options;
  if ([user, role, type, level].every((part) => part === "")) return "";
  if (labels.process === "" || labels.file === "") return labels.file;
  const [process, file] = [partsOf(labels.process), partsOf(labels.file)];
  if (!process || !file) {
    const quoted = [user, role, type, level].map((part) => JSON.stringify(part)).join(" ");
    const why = `failed to construct SELinux label from context &{${quoted}}: invalid Label`;
    throw new CodedError("failed_precondition", why);
  }
  const ownLevel = level || (process.level === "" ? file.level : randomLevel());
  return [user || file.user, file.role, file.type, ...(ownLevel === "" ? [] : [ownLevel])].join(":");
}

/** A level with two random categories. */
export function randomLevel(clock: Pick<Clock, "jitter">): string {
  const draw = (below: number) => Math.floor(clock.jitter(0, below));
  const first = draw(categories);
  const other = draw(categories - 1);
  const second = other < first ? other : other + 1;
  return `s0:c${Math.min(first, second)},c${Math.max(first, second)}`;
}

function partsOf(label: string) {
  const [user, role, type, ...level] = label.split(":");
  return user === undefined || role === undefined || type === undefined
    ? undefined
    : { user, role, type, level: level.join(":") };
}

/** The access mode of a volume for metrics, such as `RWO`: the widest of its modes. */
export function shortAccessMode({ spec }: PersistentVolume): string {
  const modes = spec?.accessModes ?? [];
  const known = [
    ["ReadWriteMany", "RWX"],
    ["ReadOnlyMany", "ROX"],
    ["ReadWriteOnce", "RWO"],
    ["ReadWriteOncePod", "RWOP"],
  ] as const;
  return known.find(([mode]) => modes.includes(mode))?.[1] ?? "";
}
