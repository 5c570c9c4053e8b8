import { applyObject } from "../api/apply.ts";
import type { ApiClient } from "../api/client.ts";
import { secretPath } from "../api/secrets.ts";
import { ignoreCode } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { createFailureLog } from "../lib/retry.ts";
import type { Runnable } from "../lib/runnables.ts";
import { createTrigger } from "../lib/trigger.ts";
import type { Secret } from "../objects.ts";

/** Finalizer of a login Secret that an object names: without its login a machine could not be cleaned. */
export const loginFinalizer = "graftlet.dev/login";

export interface LoginProtectionDeps extends ClockAndLog {
  readonly client: Pick<ApiClient, "patch">;
  /** The Secrets of the namespace. */
  readonly secrets: () => readonly Secret[];
  /** Names of the Secrets that objects refer to; undefined before the objects are known. */
  readonly named: () => { has(name: string): boolean } | undefined;
}

/** Minimum interval between two passes over all Secrets, and delay before failed writes are repeated, milliseconds. */
const [passIntervalMs, retryMs] = [1_000, 10_000];

/** Keeps login Secrets for as long as objects refer to them: a Secret that is deleted earlier is removed with the last of its objects. */
export function createLoginProtection(deps: LoginProtectionDeps): Runnable & {
  /** Checks again. Call it after Secrets or objects have changed. */
  check(): void;
} {
  const { client, secrets, named, clock, log } = deps;
  const changed = createTrigger();
  const failures = createFailureLog(log, "cannot protect login Secrets; retrying");
  const pass = async (signal: AbortSignal): Promise<void> => {
    const names = named();
    if (!names) return;
    for (const { metadata } of secrets()) {
      const isNamed = names.has(metadata.name);
      const isProtected = metadata.finalizers?.includes(loginFinalizer) ?? false;
      // No finalizer can be added to a Secret that is being deleted.
      if (isNamed === isProtected || (isNamed && metadata.deletionTimestamp)) continue;
      await applyFinalizers(client, metadata, isNamed ? [loginFinalizer] : [], signal);
    }
  };
  return {
    name: "login Secrets",
    check: changed.fire,
    async run(signal) {
      while (!signal.aborted) {
        let retry = false;
        try {
          await pass(signal);
          failures.succeeded();
        } catch (error) {
          if (signal.aborted) return;
          failures.failed(error);
          retry = true;
        }
        await clock.sleep(passIntervalMs, signal).catch(() => undefined);
        await changed.firedWithin(clock, retry ? retryMs : undefined, signal);
      }
    },
  };
}

/** Applies the finalizers of graftlet's own field manager; a Secret that is gone stays gone. */
async function applyFinalizers(
  client: LoginProtectionDeps["client"],
  { name, namespace, uid }: Secret["metadata"],
  finalizers: readonly string[],
  signal: AbortSignal,
): Promise<void> {
  const body = { apiVersion: "v1", kind: "Secret", metadata: { name, uid, finalizers } };
  await ignoreCode(
    applyObject(client, secretPath(namespace, name), body, signal, "graftlet-login"),
    "not_found",
    "conflict",
  );
}
