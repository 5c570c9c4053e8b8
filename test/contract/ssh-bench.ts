import assert from "node:assert/strict";
import { after, before } from "node:test";
import type { LinkState } from "../../providers/ssh/connection/link-state.ts";
import { type SshHost, sshHost } from "../../providers/ssh/host.ts";
import { createReverseListeners } from "../../providers/ssh/reverse/listeners.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { createLogger } from "../../src/lib/log.ts";
import { waitFor } from "../harness/wait.ts";
import { type SshdRig, type SshdRigOptions, startSshdRig } from "./sshd-rig.ts";
import { within } from "./waiting.ts";
import { argvOf } from "../harness/argv.ts";

/** What the tests of a suite share: one machine with an sshd, and hosts over SSH to it. */
export interface SshBench {
  /** The machine; there once the suite has begun. */
  rig(): SshdRig;
  /** @param nodeName in messages; the suite's name by default. */
  hostOf(fields?: Readonly<Record<string, unknown>>, nodeName?: string): SshHost;
  /** Waits until a host's link is up. */
  isUp(host: SshHost): Promise<unknown>;
  /** The state of a link that cannot come up, once somebody has asked for it. */
  downOf(fields: Readonly<Record<string, unknown>>): Promise<LinkState & { kind: "down" }>;
  /** All that was logged so far. */
  logged(): string;
}

/** To be called within a suite: the machine is made before its tests and removed after them. */
export function sshBench(name: string, options?: SshdRigOptions): SshBench {
  const lines: string[] = [];
  const log = createLogger(5, { write: (line: string) => void lines.push(line) });
  let made: SshdRig | undefined;
  before(async () => {
    made = await startSshdRig(name, options);
  });
  after(async () => made?.[Symbol.asyncDispose]());
  const rig = (): SshdRig => {
    assert.ok(made, "the machine could not be made");
    return made;
  };
  const clock = systemClock();
  const entrances = createReverseListeners();
  const hostOf = (fields?: Readonly<Record<string, unknown>>, nodeName = name): SshHost => {
    const config = rig().config(fields);
    const reverse = config.reverse && entrances.join(config.reverse, { nodeName, clock, log });
    return sshHost({ config, clock, log, ...(reverse && { reverse }) });
  };
  return {
    rig,
    hostOf,
    logged: () => lines.join(""),
    isUp: (host) => waitFor("the link", () => host.link.state().kind === "up", { everyMs: 50 }),
    async downOf(fields) {
      await using host = hostOf(fields);
      await assert.rejects(within(host.run(argvOf(["true"])), 40_000), { code: "unavailable" });
      const state = host.link.state();
      assert.ok(state.kind === "down", state.kind);
      return state;
    },
  };
}
