import type { Duplex } from "node:stream";
import type Modem from "docker-modem";
import type Dockerode from "dockerode";

/** A request that turns its connection into a duplex stream. */
export interface Hijacked {
  /** Path without API version. */
  readonly path: string;
  readonly query?: Readonly<Record<string, string>>;
  readonly body?: object;
  /** Aborts the request; the stream is ended by the caller. */
  readonly signal: AbortSignal;
}

/** Sends a request that upgrades from HTTP. @returns the raw connection; its reader gets its errors, so that it needs no error
 *  listener. */
export function hijack(engine: Dockerode, { path, query = {}, body, signal }: Hijacked): Promise<Duplex> {
  const modem: Modem = engine.modem;
  return new Promise((resolve, reject) => {
    modem.dial(
      {
        method: "POST",
        path: `${path}?`,
        options: { _query: query, _body: body ?? {} },
        hijack: true,
        // An empty body has a length: the daemon would read a chunked body as input.
        ...(!body && { file: Buffer.alloc(0) }),
        statusCodes: { 101: true },
        abortSignal: signal,
      },
      (error, answer) => {
        if (error) return reject(error);
        const connection = answer as Duplex;
        connection.on("error", () => undefined);
        resolve(connection);
      },
    );
  });
}

/** Detach keys for the Docker Engine. Kubernetes has none, but the Engine always has some (default ctrl-p ctrl-q), and holds back
 *  input that may begin them. This sequence begins with the rarest key, NUL, and is too long to be typed by chance.
 *  @see https://docs.docker.com/reference/cli/docker/container/attach/#detach-keys */
export const detachKeys = ["ctrl-@", "ctrl-^", "ctrl-@", "ctrl-_", "ctrl-@", "ctrl-^", "ctrl-_", "ctrl-@"]
  .flatMap((key, _at, all) => [key, ...all])
  .join(",");
