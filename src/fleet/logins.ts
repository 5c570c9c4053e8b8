import type { GraftedNode } from "./grafted-node.ts";
import { loginSecretNames } from "./login-files.ts";
import { createLoginProtection, loginFinalizer, type LoginProtectionDeps } from "./login-protection.ts";
import type { Secret } from "../objects.ts";

export interface LoginsDeps extends Omit<LoginProtectionDeps, "named"> {
  /** The objects with the defaults of their pools; undefined before they are known. */
  readonly objects: () => readonly GraftedNode[] | undefined;
  /** The object of that name in that form; undefined if there is none. */
  readonly object: (name: string) => GraftedNode | undefined;
}

/** The Secrets with the logins of all objects, which are protected for as long as objects refer to them. */
export function createLogins({ objects, object, ...deps }: LoginsDeps) {
  let known: ReturnType<typeof createNamedSecrets> | undefined;
  const named = () => {
    const all = known ? [] : objects();
    if (!all) return undefined;
    known ??= createNamedSecrets();
    for (const each of all) known.set(each.metadata.name, loginSecretNames(each));
    return known;
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
    /** To be called when one object has changed. */
    objectChanged(name: string) {
      const now = object(name);
      known?.set(name, now ? loginSecretNames(now) : []);
      protection.check();
    },
  };
}

/** The names of the Secrets that objects refer to. */
function createNamedSecrets() {
  const byObject = new Map<string, readonly string[]>();
  /** Number of references to each Secret. */
  const references = new Map<string, number>();
  const count = (secret: string, more: 1 | -1) => {
    const now = (references.get(secret) ?? 0) + more;
    if (now > 0) references.set(secret, now);
    else references.delete(secret);
  };
  return {
    has: (secret: string) => references.has(secret),
    /** Replaces the Secrets that an object refers to. */
    set(object: string, secrets: readonly string[]): void {
      for (const secret of byObject.get(object) ?? []) count(secret, -1);
      for (const secret of secrets) count(secret, 1);
      if (secrets.length > 0) byObject.set(object, secrets);
      else byObject.delete(object);
    },
  };
}
