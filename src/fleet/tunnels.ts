import type { ClockAndLog } from "../lib/log.ts";
import { onAbort, type Runnable } from "../lib/runnables.ts";
import type { MachineListeners } from "../seams/machine-listeners.ts";
import { type Claims, createClaims } from "./claims.ts";
import { createEnrolment, type EnrolmentDeps } from "./enrolment.ts";
import { createEnrolmentService } from "./enrolment-service.ts";
import { createExpectedMachines, type ExpectedMachinesDeps } from "./expected-machines.ts";
import type { GraftedNode } from "./grafted-node.ts";
import type { MemberDecoding } from "./member-configuration.ts";

export interface TunnelsDeps
  extends ClockAndLog,
    Omit<ExpectedMachinesDeps, "fleet" | "listener">,
    Omit<EnrolmentDeps, "publicKeyOf"> {
  readonly fleet: MemberDecoding["fleet"];
  listeners(deps: ClockAndLog): Promise<MachineListeners>;
  /** True if the object's machine opens a reverse tunnel. */
  dialsIn(object: GraftedNode): boolean;
}

/** The machines that connect to the release's listener: to enrol, and to open their reverse tunnels. */
export interface Tunnels {
  readonly running: readonly Runnable[];
  /** This replica's claims to the objects whose machines have connected to it. */
  readonly claims: Claims<GraftedNode>;
  /** True if the machine of the object with that name is connected to this replica. */
  hasArrived(name: string): boolean;
  /** To be called when objects, pools or Secrets have changed. */
  check(): void;
  /** Accepts no more machines: they connect to other replicas. Connections of machines that this replica does not serve are closed. */
  close(): void;
}

/** Lets machines connect to this replica, if the release has a listener. */
export function createTunnels(deps: TunnelsDeps): Tunnels {
  const { clock, fleet, dialsIn } = deps;
  const { listener } = fleet;
  const closing = new AbortController();
  const expected = listener && createExpectedMachines({ ...deps, listener });
  const parts: readonly Runnable[] = expected
    ? [
        createEnrolmentService({
          ...deps,
          listener,
          handler: ({ publicKeyOf }) => createEnrolment({ ...deps, publicKeyOf }),
        }),
        expected,
      ]
    : [];
  return {
    running: parts.map((part) => endingEarly(part, closing.signal)),
    claims: createClaims({
      clock,
      dialsIn: (object) => expected !== undefined && dialsIn(object),
      arrival: (name) => expected?.arrival(name),
    }),
    hasArrived: (name) => expected?.arrival(name) !== undefined,
    check: () => expected?.check(),
    close: () => closing.abort(),
  };
}

/** A runnable that also ends when another signal aborts, and idles from then on. */
function endingEarly(runnable: Runnable, early: AbortSignal): Runnable {
  return {
    ...runnable,
    async run(signal) {
      await runnable.run(AbortSignal.any([signal, early]));
      await onAbort(signal);
    },
  };
}
