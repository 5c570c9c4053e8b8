import { CodedError, abortError, throwIfAborted } from "../../../src/lib/errors.ts";
import { untilAborted } from "../../../src/lib/runnables.ts";
import { connectionLostError } from "../connection/channel-stream.ts";
import { type Session, discardChannel } from "../connection/sessions.ts";
import { type Reply, packet, packetReader, sftp, stringAt } from "./sftp-packets.ts";
import { addAbortListener } from "node:events";

/** A request: its type, followed by its fields (see `packet`). */
export type SftpRequest = readonly [type: number, ...parts: readonly (string | Buffer | number | bigint)[]];

/** An SFTP session on the target. */
export type SftpClient = Awaited<ReturnType<typeof startSftp>>;

const version = 3;

/** Starts SFTP on a session. @throws failed_precondition when the peer does not speak SFTP. */
export async function startSftp(session: Session, signal: AbortSignal) {
  const { channel, connection } = session;
  const waiting = new Map<number, PromiseWithResolvers<Reply>>();
  const hello = Promise.withResolvers<Reply>();
  let nextId = 1;
  let ended: CodedError | undefined;
  const end = (why: CodedError) => {
    ended ??= why;
    hello.reject(ended);
    for (const { reject } of waiting.values()) reject(ended);
    waiting.clear();
    discardChannel(channel);
  };
  const read = packetReader(({ type, body }) => {
    if (type === sftp.version) return hello.resolve({ type, body });
    const id = body.readUInt32BE(0);
    waiting.get(id)?.resolve({ type, body: body.subarray(4) });
    waiting.delete(id);
  });
  const onLost = () => end(connectionLostError(connection.lost));
  channel.on("data", (chunk: Buffer) => {
    try {
      read(chunk);
    } catch (error) {
      end(error instanceof CodedError ? error : new CodedError("unknown", String(error), { cause: error }));
    }
  });
  channel.stderr.resume();
  channel.once("close", () => {
    connection.lost.removeEventListener("abort", onLost);
    end(new CodedError("unavailable", "the target's SFTP session has ended"));
  });
  if (connection.lost.aborted) onLost();
  connection.lost.addEventListener("abort", onLost, { once: true });

  const withSignal = async <T>(work: Promise<T>, stop: AbortSignal): Promise<T> => {
    using _ = addAbortListener(stop, () => end(givenUp(abortError(stop))));
    return await untilAborted(work, stop);
  };
  channel.write(packet(sftp.init, version));
  const { body } = await withSignal(hello.promise, signal);
  return {
    /** OpenSSH extensions announced by the server. */
    extensions: extensionsOf(body),
    usable: (): boolean => ended === undefined,
    close: (): void => end(new CodedError("unavailable", "the SFTP session was closed")),
    /** Pipelines requests and returns all replies, in the order of the requests.
     *  @throws unavailable when the session ends meanwhile, the signal's reason when it aborts. That ends the session: the server answers in
     *  order, so a hung request would block all later ones. */
    async exchange(requests: readonly SftpRequest[], stop: AbortSignal): Promise<readonly Reply[]> {
      throwIfAborted(stop);
      if (ended) throw ended;
      const replies = requests.map(([type, ...parts]) => {
        const id = nextId;
        nextId = (nextId + 1) % 2 ** 32;
        const reply = Promise.withResolvers<Reply>();
        waiting.set(id, reply);
        channel.write(packet(type, id, ...parts));
        return reply.promise;
      });
      return withSignal(Promise.all(replies), stop);
    },
  };
}

/** The error of all other requests when one is given up. Its own reason, such as a short time limit, says nothing about them. */
function givenUp(cause: unknown): CodedError {
  return new CodedError("unavailable", "the target's SFTP session has ended: another request was given up", { cause });
}

/** Parses the extensions of a VERSION packet: pairs of name and data after the version. */
function extensionsOf(body: Buffer): ReadonlySet<string> {
  const names = new Set<string>();
  for (let at = 4; at + 4 <= body.length; ) {
    const name = stringAt(body, at);
    at += 4 + name.length;
    at += 4 + stringAt(body, at).length;
    names.add(name.toString("latin1"));
  }
  return names;
}
