/** Remembers the last result of a pure function for each first argument, for as long as that exists and the second argument stays the same.
 *  Both are compared by identity: values are immutable. */
export function memoize<A extends object, B, R>(compute: (one: A, other: B) => R): (one: A, other: B) => R {
  const known = new WeakMap<A, { readonly other: B; readonly result: R }>();
  return (one, other) => {
    const last = known.get(one);
    if (last && last.other === other) return last.result;
    const result = compute(one, other);
    known.set(one, { other, result });
    return result;
  };
}
