// A port of ADDRESS that leads to HOST PORT, everything DELAY milliseconds later, each way. Prints the port.
import { connect, createServer, type AddressInfo } from "node:net";
import { Transform } from "node:stream";

const [host = "", port, delay, address] = process.argv.slice(2);

/** Timers of one length end in the order in which they began. */
function delayed(): Transform {
  return new Transform({
    transform(chunk, _encoding, done) {
      setTimeout(() => this.push(chunk), Number(delay));
      done();
    },
    flush: (done) => void setTimeout(done, Number(delay)),
  });
}

const server = createServer({ allowHalfOpen: true, noDelay: true }, (near) => {
  const far = connect({ host, port: Number(port), allowHalfOpen: true, noDelay: true });
  for (const [one, other] of [
    [near, far],
    [far, near],
  ] as const) {
    one.pipe(delayed()).pipe(other);
    one.on("error", () => other.destroy());
    one.once("close", () => other.destroy());
  }
});
server.listen(0, address, () => console.log((server.address() as AddressInfo).port));
