import type { SpecDraft } from "../../harness/pods.ts";

/** A pod that shows what an agent makes of its spec. */
export interface SweepCase {
  /** Of the pod, too. */
  readonly name: string;
  readonly spec?: SpecDraft;
  readonly metadata?: { readonly labels?: Record<string, string>; readonly annotations?: Record<string, string> };
  /** What of the main container differs from the one that shows all. */
  readonly main?: Record<string, unknown>;
  /** How graftlet differs, as docs/deviations.md says. */
  readonly differs?: RegExp;
}

/** Shows all that a container can see of these things. */
export const show = `echo "host $(uname -n)"
cat /etc/hostname | sed 's/^/hostname /'
env | sort | cat -v | sed 's/^/env /'
echo
sed 's/^/resolv /' /etc/resolv.conf
cat -A /etc/hosts | sed 's/^/hosts /'
for file in /info/* /info/*/*; do [ -f "$file" ] && { stat -Lc "%n %a %u %g" "$file"; cat -A "$file"; echo; }; done
[ -d /whole ] && find /whole | sort | cat -v | sed 's/^/found /'
true`;

/** Sources of variables. */
export const field = (fieldPath: string) => ({ valueFrom: { fieldRef: { fieldPath } } });
export const resource = (name: string, divisor?: string, containerName?: string) => ({
  valueFrom: {
    resourceFieldRef: { resource: name, ...(divisor && { divisor }), ...(containerName && { containerName }) },
  },
});
export const key = (kind: "configMapKeyRef" | "secretKeyRef", name: string, of: string, optional?: boolean) => ({
  valueFrom: { [kind]: { name, key: of, ...(optional !== undefined && { optional }) } },
});
/** Gives variables names. */
export const numbered = (values: readonly object[]): { name: string }[] =>
  values.map((value, index) => ({ name: `V${String(index).padStart(3, "0")}`, ...value }));
