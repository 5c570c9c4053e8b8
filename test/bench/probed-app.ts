// As many programs as are asked for, on one port: `GET /NAME` is answered with 503 until the program of that name is fit, and
// with 200 from then on. A program becomes fit some time after it has been probed a few times; the moments are spread evenly over
// the probes' period. Prints the port, then a line of JSON for each: when it became fit and when it first said so, milliseconds
// since the epoch. ARGUMENTS: how many, the period in milliseconds.
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";

const [count = 0, periodMs = 0] = process.argv.slice(2).map(Number);
/** Probes that a program meets before its time comes. */
const warmUp = 3;

interface Program {
  readonly index: number;
  probes: number;
  fitAt?: number;
  told?: boolean;
}

const programs = new Map<string, Program>();
const now = (): number => performance.timeOrigin + performance.now();

const server = createServer((request, response) => {
  const name = request.url ?? "";
  const program = programs.get(name) ?? { index: programs.size, probes: 0 };
  programs.set(name, program);
  program.probes += 1;
  if (program.probes === warmUp) program.fitAt = now() + ((program.index + 0.5) / count) * periodMs;
  const { fitAt } = program;
  const fit = fitAt !== undefined && fitAt <= now();
  response.writeHead(fit ? 200 : 503).end();
  if (!fit || program.told) return;
  program.told = true;
  console.log(JSON.stringify({ name, fitAt, saidAt: now() }));
});
server.listen(0, () => console.log((server.address() as AddressInfo).port));
