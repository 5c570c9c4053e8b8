import type { Duplex } from "node:stream";
import type Modem from "docker-modem";
import type Dockerode from "dockerode";

/** A question whose connection becomes a stream both ways. */
export interface Hijacked {
  /** Without version. */
  readonly path: string;
  readonly query?: Readonly<Record<string, string>>;
  readonly body?: object;
  /** Ends the question; what has become a stream is the caller's to end. */
  readonly signal: AbortSignal;
}

/** Asks the daemon to leave HTTP. @returns the raw connection; its errors need no listener, whoever reads it gets them. */
export function hijack(engine: Dockerode, { path, query = {}, body, signal }: Hijacked): Promise<Duplex> {
  const modem: Modem = engine.modem;
  return new Promise((resolve, reject) => {
    modem.dial(
      {
        method: "POST",
        path: `${path}?`,
        options: { _query: query, _body: body ?? {} },
        hijack: true,
        // An empty body of known length: the daemon would take the chunks of one that is not for input.
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
