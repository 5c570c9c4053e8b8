/** A place in a program, by names that stand there. `about` is an identifier or a string; of nested places the innermost is meant.
 *  Where several match, `nth` says which, from 1. */
export type Place =
  | {
      readonly kind: "condition" | "element" | "entry" | "result";
      readonly about: string;
      readonly nth?: number | undefined;
    }
  | { readonly kind: "operand"; readonly of: string; readonly about: string; readonly nth?: number | undefined }
  | { readonly kind: "property" | "value" | "call"; readonly name: string }
  | { readonly kind: "argument"; readonly call: string; readonly nth: number }
  | { readonly kind: "text"; readonly text: string };

/** What happens at one place of a program. */
export type Mistake =
  | { readonly kind: "negate" | "drop"; readonly place: Place }
  | { readonly kind: "become"; readonly place: Place; readonly code: string };

/** The condition of an `if`, a loop or a `? :`. */
export const condition = (about: string, nth?: number): Place => ({ kind: "condition", about, nth });
/** One side of a binary operator. @param of the operator, such as `&&`. */
export const operand = (of: string, about: string, nth?: number): Place => ({ kind: "operand", of, about, nth });
/** An element of an array. */
export const element = (about: string): Place => ({ kind: "element", about });
/** A property or spread of an object. */
export const entry = (about: string): Place => ({ kind: "entry", about });
/** The expression that is returned. */
export const result = (about: string): Place => ({ kind: "result", about });
/** The value of an object's property. */
export const property = (name: string): Place => ({ kind: "property", name });
/** What a variable or constant begins with. */
export const value = (name: string): Place => ({ kind: "value", name });
/** A call of a function or method. */
export const call = (name: string): Place => ({ kind: "call", name });
/** An argument of a call. @param nth from 1. */
export const argument = (name: string, nth: number): Place => ({ kind: "argument", call: name, nth });
/** Text of a program or template in another language. */
export const text = (words: string): Place => ({ kind: "text", text: words });

/** The opposite of a condition. */
export const negate = (place: Place): Mistake => ({ kind: "negate", place });
/** Left out: an element, an entry, an argument, an operand with its operator, a call. */
export const drop = (place: Place): Mistake => ({ kind: "drop", place });
/** Other code. @param code its names are of the same file; `$` stands for the code that was there. */
export const become = (place: Place, code: string): Mistake => ({ kind: "become", place, code });
/** A condition that never holds. */
export const never = (place: Place): Mistake => become(place, "false");
/** A condition that always holds. */
export const always = (place: Place): Mistake => become(place, "true");
