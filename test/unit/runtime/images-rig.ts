import assert from "node:assert/strict";
import { PodSandboxConfig, type PullImageRequest } from "../../../src/gen/cri.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { createLogger } from "../../../src/lib/log.ts";
import type { Container, Pod, PodSpec, Secret } from "../../../src/objects.ts";
import { type ImagePullerDeps, createImagePuller } from "../../../src/runtime/images/puller.ts";
import { StartError } from "../../../src/runtime/start-error.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { unmeasured } from "../../fakes/measures.ts";
import { aContainer, aPod } from "../../fakes/pods.ts";
import { fakeRuntime } from "../../fakes/runtime.ts";

const { signal } = new AbortController();

/** Settings of a puller without limits, records and metrics. */
export const unbounded = {
  measures: unmeasured.pulls,
  keyrings: [],
  serialize: false,
  maxParallel: undefined,
  qps: 0,
  burst: 0,
};

/** An image puller on a fake runtime, with these Secrets in the cluster. */
export function setUp(more: Partial<ImagePullerDeps> = {}, secrets: readonly Secret[] = []) {
  const clock = fakeClock();
  const runtime = fakeRuntime({ clock });
  const events: string[] = [];
  const lines: string[] = [];
  const deps: ImagePullerDeps = {
    pullManager: undefined,
    images: runtime,
    objects: {
      async secret(_namespace, name) {
        const found = secrets.find(({ metadata }) => metadata.name === name);
        if (!found) throw new CodedError("not_found", `secret "${name}" not found`);
        return found;
      },
    },
    events: {
      event: ({ fieldPath }, type, reason, message) =>
        void events.push(`${fieldPath ?? "pod"} ${type} ${reason}: ${message}`),
    },
    clock,
    log: createLogger(9, { write: (line: string) => void lines.push(line) }),
    ...unbounded,
    ...more,
  };
  const puller = createImagePuller(deps);
  const ensure = (
    container: Partial<Container> = {},
    spec: Partial<PodSpec> = {},
    metadata: Partial<Pod["metadata"]> = {},
  ) => {
    const whole = aContainer("c", { image: "busybox:1", imagePullPolicy: "IfNotPresent", ...container });
    return puller.ensure(
      aPod({ containers: [whole], ...spec }, metadata),
      whole,
      PodSandboxConfig.fromPartial({}),
      signal,
    );
  };
  const pulls = () =>
    runtime.calls.filter(({ verb }) => verb === "pullImage").map(({ request }) => request as PullImageRequest);
  return { clock, runtime, events, lines, ensure, pulls, puller };
}

export const at = "spec.containers{c}";

/** Reason, message and retry time of the StartError that `call` rejects with. */
export async function failure(
  call: Promise<unknown>,
): Promise<[reason: string, message: string, retryAt: number | undefined]> {
  const error = await call.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  assert.ok(error instanceof StartError, `expected a StartError, got ${String(error)}`);
  return [error.reason, error.message, error.retryAt];
}
