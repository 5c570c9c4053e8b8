/** Replaces `$(NAME)` by the variable's value. What no variable is named stays as it is; `$$` stands for `$`, so that
 *  `$$(NAME)` is the literal `$(NAME)`.
 *  @param valueOf undefined for an unknown name.
 *  @see https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/ */
export function expand(text: string, valueOf: (name: string) => string | undefined): string {
  return text.replace(/\$(?:\$|\(([^)]*)\))/g, (match, name: string | undefined) => {
    if (name === undefined) return "$";
    return valueOf(name) ?? match;
  });
}
