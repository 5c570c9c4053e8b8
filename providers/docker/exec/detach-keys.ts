/** Keys at which the Docker Engine lets a terminal go. It always has some (ctrl-p, ctrl-q when none are named) and keeps a
 *  key back while it may be the first of them; Kubernetes knows none. So they begin with the rarest key there is, NUL, and
 *  are too many to be met by chance.
 *  @see https://docs.docker.com/reference/cli/docker/container/attach/#detach-keys */
export const detachKeys = ["ctrl-@", "ctrl-^", "ctrl-@", "ctrl-_", "ctrl-@", "ctrl-^", "ctrl-_", "ctrl-@"]
  .flatMap((key, _at, all) => [key, ...all])
  .join(",");
