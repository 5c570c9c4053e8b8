import type { ClockAndLog } from "../src/lib/log.ts";
import type { MachineListeners } from "../src/seams/machine-listeners.ts";
import type { ProviderFactory } from "../src/seams/provider.ts";

/** How the nodes of one process reach their machines. */
export interface MachineAccess {
  /** Provider factories by the names in `--provider` and GraftletConfiguration. */
  readonly providers: Readonly<Record<string, ProviderFactory>>;
  /** Returns the listeners at which machines enrol and open reverse tunnels. */
  listeners(deps: ClockAndLog): Promise<MachineListeners>;
}

/** Address of the listeners for machines of GraftedNodes: all of graftlet's machine. */
const address = "0.0.0.0";

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
    async listeners({ clock, log }) {
      const { listeners, publicKeyOf } = await loaded();
      return {
        open: (listener, handler) => listeners.acceptEnrolments({ address, ...listener }, { handler, clock, log }),
        expect: (listener, nodeName, onChange) =>
          listeners.expect({ address, ...listener }, { nodeName, onChange, clock, log }),
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
