import type { ClockAndLog } from "../src/lib/log.ts";
import type { EnrolmentListeners } from "../src/seams/enrolment.ts";
import type { ProviderFactory } from "../src/seams/provider.ts";

/** How the nodes of one process reach their machines. */
export interface MachineAccess {
  /** Provider factories by the names in `--provider` and GraftletConfiguration. */
  readonly providers: Readonly<Record<string, ProviderFactory>>;
  /** Returns the listeners at which machines that open reverse tunnels enrol. */
  enrolments(deps: ClockAndLog): Promise<EnrolmentListeners>;
}

/** Creates the providers for the nodes of one process. A provider's code is loaded on first use, to save memory. */
export function createMachineAccess(): MachineAccess {
  let ssh: ReturnType<typeof loadSsh> | undefined;
  const loaded = () => (ssh ??= loadSsh());
  return {
    providers: {
      cri: async (options) => (await import("./cri/provider.ts")).criProvider(options),
      docker: async (options) => (await import("./docker/provider.ts")).dockerProvider(options),
      ssh: async (options) => (await loaded()).provider(options),
    },
    async enrolments({ clock, log }) {
      const { listeners, publicKeyOf } = await loaded();
      return {
        open: (listener, handler) =>
          listeners.acceptEnrolments({ address: "0.0.0.0", ...listener }, { handler, clock, log }),
        publicKeyOf,
      };
    },
  };
}

async function loadSsh() {
  const [{ sshProvider }, { createReverseListeners }, { publicKeyOf }] = await Promise.all([
    import("./ssh/provider.ts"),
    import("./ssh/reverse/listeners.ts"),
    import("./ssh/reverse/enrolment.ts"),
  ]);
  const listeners = createReverseListeners();
  return { provider: sshProvider(listeners), listeners, publicKeyOf };
}
