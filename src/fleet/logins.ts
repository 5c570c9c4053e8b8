import type { GraftedNode } from "./grafted-node.ts";
import { loginSecretNames } from "./login-files.ts";
import { createLoginProtection, loginFinalizer, type LoginProtectionDeps } from "./login-protection.ts";
import type { Secret } from "../objects.ts";

export interface LoginsDeps extends Omit<LoginProtectionDeps, "named"> {
  /** The objects with the defaults of their pools; undefined before they are known. */
  readonly objects: () => readonly GraftedNode[] | undefined;
}

/** The Secrets with the logins of all objects, which are protected for as long as objects refer to them. */
export function createLogins({ objects, ...deps }: LoginsDeps) {
  let known: ReadonlySet<string> | undefined;
  const named = () => {
    const all = objects();
    return all && (known ??= new Set(all.flatMap(loginSecretNames)));
  };
  const protection = createLoginProtection({ ...deps, named });
  return {
    running: protection,
    /** True if objects may refer to the Secret, or did. */
    concerns: ({ metadata: { name, finalizers } }: Secret): boolean =>
      named()?.has(name) === true || finalizers?.includes(loginFinalizer) === true,
    /** To be called when Secrets have changed. */
    check: protection.check,
    /** To be called when objects or pools have changed. */
    objectsChanged() {
      known = undefined;
      protection.check();
    },
  };
}
