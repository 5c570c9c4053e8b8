/** An unsupported field, and why it is unsupported. */
export interface Unserved {
  readonly field: string;
  readonly why: string;
}

/** Support for one field: always supported, or depending on its value. */
export type Decision<Value> = "served" | ((value: NonNullable<Value>, path: string) => readonly Unserved[]);

/** A decision for every field of a type; a missing one does not compile. */
export type Decisions<Type> = { readonly [Field in keyof Type]-?: Decision<Type[Field]> };

/** Unsupported if set. Absent, false, and empty strings, lists and objects count as not set. */
export function held(why: string): (value: unknown, path: string) => readonly Unserved[] {
  return heldWhen((value) => !saysNothing(value), why);
}

export function heldWhen<Value>(
  isUnserved: (value: Value) => boolean,
  why: string,
): (value: Value, path: string) => readonly Unserved[] {
  return (value, path) => (isUnserved(value) ? [{ field: path, why }] : []);
}

/** Applies the decision of each field of an object. Unknown fields belong to a newer kubelet and are ignored. */
export function fieldsOf<Type extends object>(
  decisions: Decisions<Type>,
): (value: Type, path: string) => readonly Unserved[] {
  return (value, path) =>
    (Object.keys(decisions) as (keyof Type & string)[]).flatMap((field) => {
      const decision: Decision<Type[typeof field]> = decisions[field];
      const content = value[field];
      return decision === "served" || content === undefined || content === null
        ? []
        : decision(content, `${path}.${field}`);
    });
}

export function eachOf<Item>(
  decide: (item: Item, path: string) => readonly Unserved[],
): (list: readonly Item[], path: string) => readonly Unserved[] {
  return (list, path) => list.flatMap((item, index) => decide(item, `${path}[${index}]`));
}

function saysNothing(value: unknown): boolean {
  if (typeof value !== "object" || value === null)
    return value === undefined || value === null || value === false || value === "";
  return Object.keys(value).length === 0;
}
