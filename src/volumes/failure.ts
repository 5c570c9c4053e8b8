import { CodedError, codeOf, messageOf } from "../lib/errors.ts";

/** Failure of one step of mounting a volume, worded as in its event: `MountVolume.MountDevice failed for volume "v" : why`. */
export class VolumeStepError extends CodedError {
  /** The failed step, such as `MountVolume.MountDevice failed`. */
  readonly step: string;
  readonly volume: string;
  constructor(step: string, volume: string, why: unknown) {
    super(codeOf(why), messageOf(why), { cause: why });
    this.name = "VolumeStepError";
    this.step = step;
    this.volume = volume;
  }
}

/** A claim that cannot be used yet. The event of the pod sync reports it; there is no separate event. */
export class UnprocessedVolumeError extends CodedError {
  constructor(message: string, cause?: unknown) {
    super(cause === undefined ? "failed_precondition" : codeOf(cause), message, { cause });
    this.name = "UnprocessedError";
  }
}

/** A volume that waits for another component, such as the attach/detach controller. This is not a failure, and there is no event
 *  for it. */
export class VolumePendingError extends CodedError {
  constructor(message: string) {
    super("unavailable", message);
    this.name = "NotYetError";
  }
}

/** Block volume steps that are checked before, or next to, the actual mapping. */
const checksBeforeMapping = ["MapVolume.NodeAffinity check failed", "MapVolume.FindMapperPluginBySpec failed"];

/** Reason of the event for a volume that could not be set up: block volumes are mapped, not mounted. */
export function mountFailureReason(error: unknown): "FailedMount" | "FailedMapVolume" {
  const step = error instanceof VolumeStepError ? error.step : "";
  return step.startsWith("MapVolume.") && !checksBeforeMapping.includes(step) ? "FailedMapVolume" : "FailedMount";
}

/** Message of the event for a volume that could not be set up. @param volume name of the volume in the pod's spec. */
export function mountFailureMessage(volume: string, error: unknown): string {
  const { step, volume: name } =
    error instanceof VolumeStepError ? error : { step: "MountVolume.SetUp failed", volume };
  return `${step} for volume "${name}" : ${messageOf(error)}`;
}
