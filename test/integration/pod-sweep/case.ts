import { isUtf8 } from "node:buffer";
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

/** Shows all that a container can see of these things; the last line is `shown`. */
export const show = `echo "host $(uname -n)"
cat /etc/hostname | sed 's/^/hostname /'
od -An -v -tx1 /proc/1/environ | tr -d ' \\n' | sed 's/^/environ /'
echo
sed 's/^/resolv /' /etc/resolv.conf
cat -A /etc/hosts | sed 's/^/hosts /'
for file in /info/* /info/*/*; do [ -f "$file" ] && { stat -Lc "%n %a %u %g" "$file"; cat -A "$file"; echo; }; done
[ -d /whole ] && find /whole | sort | cat -v | sed 's/^/found /'
echo shown`;

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

const environ = "environ ";

/** What a pod of the sweep printed, line by line. Each variable of the first process's environment is a line of its own, with its exact
 *  value in quotes, in hexadecimal where it is not UTF-8. Variables and options of the resolver are sorted: the kubelet gives them no order. */
export function linesOf(output: string): string[] {
  return output.split("\n").flatMap((line) => {
    if (line.startsWith("resolv options ")) return [line.split(" ").toSorted().join(" ")];
    return line.startsWith(environ) ? variablesOf(Buffer.from(line.slice(environ.length), "hex")) : [line];
  });
}

function variablesOf(bytes: Buffer): string[] {
  const variables: string[] = [];
  for (let start = 0; start < bytes.length; ) {
    const end = bytes.indexOf(0, start);
    const variable = bytes.subarray(start, end < 0 ? bytes.length : end);
    variables.push(`env ${isUtf8(variable) ? JSON.stringify(variable.toString()) : variable.toString("hex")}`);
    start += variable.length + 1;
  }
  return variables.toSorted();
}
