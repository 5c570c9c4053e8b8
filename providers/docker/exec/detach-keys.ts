/** Detach keys of the Docker Engine. It always has some (default ctrl-p ctrl-q) and withholds a key that may begin them;
 *  Kubernetes has none. These begin with the rarest key, NUL, and are too many to be typed by chance.
 *  @see https://docs.docker.com/reference/cli/docker/container/attach/#detach-keys */
export const detachKeys = ["ctrl-@", "ctrl-^", "ctrl-@", "ctrl-_", "ctrl-@", "ctrl-^", "ctrl-_", "ctrl-@"]
  .flatMap((key, _at, all) => [key, ...all])
  .join(",");
