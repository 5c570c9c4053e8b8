import { CodedError } from "../../../src/lib/errors.ts";
import type { Logger } from "../../../src/lib/log.ts";
import type { PodStatus } from "../../../src/objects.ts";
import { createStatusManager } from "../../../src/status/manager.ts";
import type { PodApi } from "../../../src/status/pod-api.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { unmeasured } from "../../fakes/measures.ts";
import { type TestPod, aPod } from "../../fakes/pods.ts";
import { aColumn } from "../../fakes/state.ts";

export const quiet: Logger = { trace() {}, debug() {}, info() {}, warn() {}, error() {}, child: () => quiet };

/** An API server with one pod, and the status manager that writes to it. Conditions and lists are not merged: patches are asserted.
 *  @param staticUid UID of the static pod whose mirror pod it is. */
export function world(start: Partial<TestPod> = {}, mayRun = { now: false }, staticUid?: string) {
  const clock = fakeClock();
  let version = 10;
  const server: { pod: TestPod | undefined } = { pod: { ...aPod({}, { resourceVersion: "10" }), ...start } };
  const store: { pod: TestPod | undefined } = { pod: server.pod };
  const patches: object[] = [];
  const removed: string[] = [];
  const fail: Error[] = [];
  const check = (uid: string, code: "invalid_argument" | "conflict"): TestPod => {
    const error = fail.shift();
    if (error) throw error;
    if (!server.pod) throw new CodedError("not_found", "gone");
    if (server.pod.metadata.uid !== uid) throw new CodedError(code, "metadata.uid");
    return server.pod;
  };
  const api: PodApi = {
    async get() {
      if (!server.pod) throw new CodedError("not_found", "gone");
      return server.pod;
    },
    async patchStatus({ uid }, status) {
      const pod = check(uid, "invalid_argument");
      patches.push(status);
      version += 1;
      server.pod = {
        ...pod,
        metadata: { ...pod.metadata, resourceVersion: String(version) },
        status: { ...pod.status, ...status },
      };
      return server.pod;
    },
    async remove({ uid }) {
      check(uid, "conflict");
      removed.push(uid);
      server.pod = undefined;
    },
  };
  const status = aColumn<PodStatus>();
  /** UIDs of pods whose status changed, in order. */
  const changes: string[] = [];
  status.onChange((uid) => void changes.push(uid));
  const manager = createStatusManager({
    status,
    privateColumn: aColumn,
    onEnd: () => undefined,
    measures: unmeasured.statuses,
    api,
    apiPods: {
      get: (uid) => (uid === (staticUid ?? store.pod?.metadata.uid) ? store.pod : undefined),
      onChange: () => () => {},
    },
    worker: { get: () => ({ phase: mayRun.now ? "syncing" : "finished", pod: undefined }) },
    clock,
    log: quiet,
  });
  const stop = new AbortController();
  const done = manager.run(stop.signal);
  const end = async () => {
    stop.abort();
    await done;
  };
  return {
    clock,
    server,
    store,
    patches,
    removed,
    changes,
    fail,
    manager,
    mayRun,
    end,
    settle: () => clock.advance(0),
  };
}

export const withStatus = (status: PodStatus, metadata: Partial<TestPod["metadata"]> = {}): TestPod => ({
  ...aPod({}, { resourceVersion: "10", ...metadata }),
  status,
});
export const nowText = "2026-01-01T00:00:00Z";
