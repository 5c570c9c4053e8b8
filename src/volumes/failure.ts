import { CodedError, codeOf, messageOf } from "../lib/errors.ts";

/** Failure of one step of a volume, as its event names it: `MountVolume.MountDevice failed for volume "v" : why`. */
export class StepError extends CodedError {
  /** `MountVolume.MountDevice failed`, and the like. */
  readonly step: string;
  /** Name of the persistent volume. */
  readonly volume: string;
  constructor(step: string, volume: string, why: unknown) {
    super(codeOf(why), messageOf(why), { cause: why });
    this.name = "StepError";
    this.step = step;
    this.volume = volume;
  }
}

/** State of a claim that does not allow a volume: it has no event of its own, the pass over the pod tells of it. */
export class UnprocessedError extends CodedError {
  constructor(message: string, cause?: unknown) {
    super(cause === undefined ? "failed_precondition" : codeOf(cause), message, { cause });
    this.name = "UnprocessedError";
  }
}

/** Work of others that a volume waits for, such as its attachment: no failure, and no event of its own. */
export class NotYetError extends CodedError {
  constructor(message: string) {
    super("unavailable", message);
    this.name = "NotYetError";
  }
}

/** Steps of a device's that are looked at before, or beside, its set-up. */
const beforeMapping = ["MapVolume.NodeAffinity check failed", "MapVolume.FindMapperPluginBySpec failed"];

/** Reason of the event of a volume that could not be set up: a device is not mounted. */
export function failureReason(error: unknown): "FailedMount" | "FailedMapVolume" {
  const step = error instanceof StepError ? error.step : "";
  return step.startsWith("MapVolume.") && !beforeMapping.includes(step) ? "FailedMapVolume" : "FailedMount";
}

/** Text of that event. @param volume name of the volume in the pod's spec. */
export function mountFailure(volume: string, error: unknown): string {
  const { step, volume: name } = error instanceof StepError ? error : { step: "MountVolume.SetUp failed", volume };
  return `${step} for volume "${name}" : ${messageOf(error)}`;
}
