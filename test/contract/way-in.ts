import { spawn } from "node:child_process";
import { type AddressInfo, createServer } from "node:net";
import { Transform } from "node:stream";

/** A port of this machine's loopback that leads into a machine of the tests. */
export interface WayIn {
  readonly port: number;
  /** From now on everything takes so long, each way. */
  delay(ms: number): void;
  close(): void;
}

/** Opens the only way into a machine: each connection is made again inside.
 *  @param argv a command inside whose standard streams are such a connection. */
export async function openWayIn(argv: readonly [string, ...string[]]): Promise<WayIn> {
  let delayMs = 0;
  const line = () =>
    new Transform({
      transform(chunk, _encoding, done) {
        if (delayMs === 0) return done(null, chunk);
        setTimeout(() => this.push(chunk), delayMs);
        done();
      },
      flush: (done) => void setTimeout(done, delayMs),
    });
  const [program, ...rest] = argv;
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
    const join = spawn(program, rest, { stdio: ["pipe", "pipe", "ignore"] });
    socket.on("error", () => undefined);
    join.stdin.on("error", () => undefined);
    socket.pipe(line()).pipe(join.stdin);
    join.stdout.pipe(line()).pipe(socket);
    join.once("exit", () => socket.destroy());
    socket.once("close", () => join.kill("SIGKILL"));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const delay = (ms: number) => {
    delayMs = ms;
  };
  return { port: (server.address() as AddressInfo).port, delay, close: () => server.close() };
}
