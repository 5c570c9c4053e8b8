import type { Wire } from "../objects.ts";

export interface UnsupportedField {
  readonly field: string;
  readonly why: string;
}

/** Support for one field: always supported, or depending on its value. */
export type FieldDecision<Value> =
  | "supported"
  | ((value: NonNullable<Value>, path: string) => readonly UnsupportedField[]);

/** A decision for every field of a type; a missing one does not compile. */
export type FieldDecisions<Type> = { readonly [Field in keyof Type]-?: FieldDecision<Type[Field]> };

/** Decisions for the fields of a type of the Kubernetes API. */
export type WireDecisions<Type> = FieldDecisions<Wire<Type>>;

export function unsupportedIf<Value>(
  isUnsupported: (value: Value) => boolean,
  why: string,
): (value: Value, path: string) => readonly UnsupportedField[] {
  return (value, path) => (isUnsupported(value) ? [{ field: path, why }] : []);
}

/** Applies the decision of each field of an object. Unknown fields belong to a newer kubelet and are ignored. */
export function checkFields<Type extends object>(
  decisions: FieldDecisions<Type>,
): (value: Type, path: string) => readonly UnsupportedField[] {
  return (value, path) =>
    (Object.keys(decisions) as (keyof Type & string)[]).flatMap((field) => {
      const decision: FieldDecision<Type[typeof field]> = decisions[field];
      const content = value[field];
      return decision === "supported" || content === undefined || content === null
        ? []
        : decision(content, `${path}.${field}`);
    });
}

export function checkEach<Item>(
  decide: (item: Item, path: string) => readonly UnsupportedField[],
): (list: readonly Item[], path: string) => readonly UnsupportedField[] {
  return (list, path) => list.flatMap((item, index) => decide(item, `${path}[${index}]`));
}
