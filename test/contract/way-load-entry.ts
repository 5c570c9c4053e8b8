// graftlet's end of the pods' way, for the machine that the ssh provider's SETTINGS name: what POD there sends to CLUSTER is joined, by a
// relay that INTERPRETER runs, and a door at OWN leads to the pod. Prints the door's port, then answers each line of its input, `up BYTES`
// or `down BYTES`, with the seconds that so much takes over the same link to a cat on the machine, or from one.
import { createInterface } from "node:readline";
import { readSshConfig } from "../../providers/ssh/config.ts";
import { sshHost } from "../../providers/ssh/host.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { silentLog } from "../../src/lib/log.ts";
import { createFairShares } from "../../src/lib/fair-shares.ts";
import { createConnectionForwarder } from "../../src/service-tunnel/connections.ts";
import { createTunnelGate } from "../../src/service-tunnel/gate.ts";
import { createEndpointListeners } from "../../src/endpoint-publisher/endpoint-listeners.ts";
import { listenOnTarget } from "../../src/service-tunnel/preflight.ts";
import { relayPrograms, startTunnelRelay } from "../../src/service-tunnel/relay.ts";
import { applyRules, rulesCheck, rulesText, tunnelSocket } from "../../src/service-tunnel/rules.ts";
import { secondsOfCat } from "../harness/link-cat.ts";
import { argvOf } from "../harness/argv.ts";

const [settings = "", interpreter, pod = "", cluster = "", listenAddress = ""] = process.argv.slice(2);
const [clock, log, root, to] = [systemClock(), silentLog(), `/way-load-${interpreter}`, `${cluster}:80`];
const { signal } = new AbortController();
await using host = sshHost({ config: readSshConfig(JSON.parse(settings)), clock, log });
const place = { link: tunnelSocket(root), check: rulesCheck(root) };
const gate = createTunnelGate();
gate.allow({ pods: [pod], tcp: [to], udp: [] });
const join = createConnectionForwarder({
  gate,
  shares: createFairShares(4_096),
  onRefused: console.error,
  onLimitReached: console.error,
  clock,
});
await using _listener = await listenOnTarget(host, place.link, (connection) => void join(connection), signal);
const others = relayPrograms("", []).flatMap((program) =>
  program.interpreter === interpreter ? [] : program.interpreter,
);
const spawn: typeof host.spawn = (argv, until) =>
  host.spawn(argvOf(others.includes(argv[0] ?? "") ? ["/no-such-interpreter"] : argv), until);
const relay = await startTunnelRelay(
  { host: { spawn }, clock },
  place,
  { onDatagram() {}, onFull: console.error, onRulesLost() {} },
  signal,
);
relay.allow([pod]);
const redirections = { port: relay.port, pods: [pod], tcp: [to], udp: [], addresses: [cluster] };
await applyRules(host, rulesText(root, redirections, undefined), signal);
await using doors = createEndpointListeners({
  dial: (host.forPods ?? host).dial,
  podAddress: () => pod,
  listenAddress,
  connections: createFairShares(16_384),
  nodeName: "edge",
  clock,
  log,
});
console.log(await doors.open({ uid: "pod", port: 80 }, new Set()));
for await (const line of createInterface(process.stdin)) {
  const [direction = "", bytes] = line.split(" ");
  console.log(await secondsOfCat(host, direction, Number(bytes)));
}
