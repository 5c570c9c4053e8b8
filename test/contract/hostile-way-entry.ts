// Two nodes of one process with tunneled pods: the relay of the first does what KIND says, the other's is honest. Prints a line of JSON: how
// much this process has grown (MiB), how long its event loop stood still and how long a connection of the other node waited (ms), and the
// reasons of events. Runs on a network of its own that has the Services' addresses.
import { once } from "node:events";
import { mkdtempSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { localHost } from "../../providers/local/host.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { silentLog } from "../../src/lib/log.ts";
import { createTunnelLimits } from "../../src/service-tunnel/tunnel-limits.ts";
import { createServiceTunnel, type ServiceTunnelDeps } from "../../src/service-tunnel/service-tunnel.ts";
import type { Service } from "../../src/objects.ts";
import type { RuntimePod } from "../../src/pipeline.ts";
import { never } from "../fakes/signals.ts";
import { aColumn } from "../fakes/state.ts";
import { nodeCommand } from "../harness/agent.ts";
import { argvOf } from "../harness/argv.ts";
import { firstLine, start } from "../harness/processes.ts";

const [kind = "", expectedEvents = ""] = process.argv.slice(2);
const clock = systemClock();
const dir = mkdtempSync(join(tmpdir(), "hostile-way-"));
const tunnelLimits = createTunnelLimits();
const stop = new AbortController();
const events = new Set<string>();

/** Echoes connections and datagrams of the two Services. */
const server = `
const [net, dgram] = [require("node:net"), require("node:dgram")];
net.createServer((socket) => socket.on("error", () => {}).pipe(socket)).listen(443, "10.96.0.1", () => console.log("ready"));
const udp = dgram.createSocket("udp4").on("message", (data, from) => udp.send(data, from.port, from.address)).bind(53, "10.96.0.10");`;

/** A relay. \`honest\` does what it is asked for; the others lie for some seconds, and keep what they have opened. */
const relay = String.raw`
import os, socket, sys, threading, time
kind, link = sys.argv[1:]
def say(text): os.write(1, text.encode())
def obey():
    for line in sys.stdin:
        if line.startswith("udp"): say("udp " + " ".join(to + "=700" for to in line.split()[1:]) + "\n")
    os._exit(0)
threading.Thread(target=obey, daemon=True).start()
say("ready 1023\n")
def whole(text):
    data = text.encode()
    while data: data = data[os.write(1, data):]
def connection(header):
    s = socket.socket(socket.AF_UNIX)
    try: s.connect(link); s.sendall(header)
    except OSError: pass
    return s
until = time.monotonic() + 3.5
time.sleep(1)
if kind == "lines":
    bad = ["lost", "ready 70000", "ready x", "udp", "udp 1.2.3.4:5=6 " * 50, "full 10.88.0.2", "full " + "9" * 1000, "d", "d x y z",
        "d 10.96.0.10:53 10.88.0.2:x zz", "d " + "1" * 2000 + " 10.88.0.2:1 00", "pods", "\x00\xff" * 100, ""]
    while time.monotonic() < until: whole("\n".join(bad * 1000) + "\n")
if kind == "datagrams":
    n = 0
    while time.monotonic() < until:
        block = []
        for _ in range(200):
            n += 1
            for to, length in (("10.96.0.10:53", 20), ("10.96.0.10:53", 65507), ("127.0.0.1:53", 1000), ("255.255.255.255:53", 30000)):
                block.append("d %s 10.88.0.%d:%d %s" % (to, n % 9, 1024 + n % 60000, "00" * length))
        whole("\n".join(block) + "\n")
if kind in ("idle", "silent"):
    headers = {"idle": b"10.88.0.2 4000 10.96.0.1 443\n", "silent": b"10.88.0.2 40"}
    held = []
    while len(held) < 6000: held.append(connection(headers[kind]))
if kind == "churn":
    while time.monotonic() < until:
        s = connection(b"10.88.0.2 4000 10.96.0.1 443\nhello")
        s.settimeout(1)
        try: s.recv(100)
        except OSError: pass
        s.close()
time.sleep(60)
`;

const service = (clusterIP: string, port: number, protocol: string): Service => ({
  metadata: { name: `s-${port}`, namespace: "default", uid: `s-${port}` },
  spec: { clusterIP, clusterIPs: [clusterIP], ports: [{ port, protocol }] },
});
const services = [service("10.96.0.1", 443, "TCP"), service("10.96.0.10", 53, "UDP")];

/** @returns the path of the node's end of the link. */
async function startNode(name: string, relayKind: string): Promise<string> {
  const path = join(dir, name);
  const local = localHost({ clock });
  const host: ServiceTunnelDeps["host"] = {
    fs: local.fs,
    run: async () => ({ code: 0, stdout: "", stderr: "", truncated: false }),
    spawn: (_argv, signal) => local.spawn(argvOf(["python3", "-c", relay, relayKind, path]), signal),
    async listen(address, take) {
      const end = createServer({ allowHalfOpen: true }, take).listen(path);
      await once(end, "listening");
      return { address, [Symbol.asyncDispose]: async () => void end.close() };
    },
  };
  const way = createServiceTunnel({
    headless: undefined,
    host,
    rootDir: `/hostile-way-${name}`,
    nodeName: name,
    tunnelLimits,
    podCache: aColumn<RuntimePod>(),
    services: { list: () => services, onChange: () => () => undefined },
    serviceFilter: () => true,
    waitForTarget: async () => never,
    onObstacleChange: () => undefined,
    report: (reason) => void events.add(`${name} ${reason}`),
    clock,
    log: silentLog(),
  });
  void way.run(stop.signal);
  for (const pod of [2, 3]) await way.openFor(`uid-${pod}`, [`10.88.0.${pod}`], stop.signal);
  return path;
}

/** Opens a connection of the honest node. @returns how long it took to be joined, ms. */
async function ask(path: string): Promise<number> {
  const began = clock.monotonic();
  const socket = connect(path);
  socket.write("10.88.0.2 4000 10.96.0.1 443\nhello");
  const [answer] = (await once(socket, "data")) as [Buffer];
  if (!answer.toString().startsWith("+")) throw new Error(`it is answered ${answer.toString()}`);
  socket.end().resume();
  return clock.monotonic() - began;
}

const echo = start([...nodeCommand, "-e", server]);
await firstLine(echo);
const honest = await startNode("honest", "honest");
await ask(honest);
globalThis.gc?.();
const delay = monitorEventLoopDelay({ resolution: 10 });
const before = process.memoryUsage().rss;
await startNode("hostile", kind);
delay.enable();
let [grown, slowest] = [0, 0];
const begun = clock.monotonic();
/** On a busy machine it takes longer until the target has done enough for an event. */
const isOver = () => {
  const ms = clock.monotonic() - begun;
  return ms > 30_000 || (ms > 4_500 && events.size >= Number(expectedEvents));
};
for (; !isOver(); await clock.sleep(100)) {
  slowest = Math.max(slowest, await ask(honest));
  grown = Math.max(grown, process.memoryUsage().rss - before);
}
const ms = (value: number) => Math.round(value);
console.log(
  JSON.stringify({ grown: ms(grown / 2 ** 20), stood: ms(delay.max / 1e6), waited: ms(slowest), events: [...events] }),
);
echo.kill();
process.exit(0);
