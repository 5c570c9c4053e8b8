import { parse } from "yaml";
import { type ListedTest, whole } from "../list.ts";

/** Tests that are not run beside other work of a machine, and why. */
export interface Withheld {
  readonly test: RegExp;
  readonly reason: string;
  /** True where a guest, which is a machine of its own, runs it. */
  readonly guest: boolean;
}

/** Reads the list of withheld tests. @param source the file, for errors. @throws a sentence that names the entry at fault. */
export function parseWithheld(text: string, source: string): readonly Withheld[] {
  const entries: unknown = parse(text) ?? [];
  if (!Array.isArray(entries)) throw new Error(`${source} is no list: give one of test and reason`);
  return entries.map((entry: Partial<Record<keyof Withheld, unknown>> | null, index) => {
    const { test, reason, guest = false } = entry ?? {};
    if (typeof test !== "string" || typeof reason !== "string" || typeof guest !== "boolean")
      throw new Error(`entry ${index + 1} of ${source} is not a test and a reason`);
    return { test: new RegExp(test), reason, guest };
  });
}

/** Why a test is withheld; undefined for one that is run. */
export function reasonAgainst(withheld: readonly Withheld[], test: ListedTest): string | undefined {
  return withheld.find((entry) => entry.test.test(whole(test)))?.reason;
}
