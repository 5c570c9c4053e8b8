import assert from "node:assert/strict";
import type { ChildProcess } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, describe, test } from "node:test";
import { relayPrograms } from "../../src/service-tunnel/relay.ts";
import { cpuSeconds } from "../bench/usage.ts";
import { nodeCommand } from "../harness/agent.ts";
import { firstLine, inodeOf, listProcesses, must, run, start } from "../harness/processes.ts";
import { type SshdRig, startSshdRig } from "./sshd-rig.ts";

const [pod, machine, cluster, own] = ["10.99.0.2", "10.99.0.1", "10.96.77.1", "127.0.0.1"] as const;
const namespace = `graftlet-load-${process.pid}`;
const bytes = 256 * 1024 * 1024;
/** Each is measured so often, in turn with a cat. */
const rounds = 3;
/** Part of a cat's throughput that the pods' way has at least. On two cores it is 0.55 to 1: a program that sends, one that takes and the
 *  relay share them with the link. */
const leastOfCat = 0.35;
/** Processor time of sshd, graftlet and the relay for it, as so many times a cat's, at most: unlike the throughput this does not depend on
 *  what else runs. It is 0.7 to 1.5. */
const mostOfCat = 1.9;

/** Connections a second of eight threads, at least, in the best round. */
const leastConnections = 200;

/** Bytes for a link that a network bounds, as that between two machines, and its speed, MiB/s: one of a gigabit. */
const [bytesOfCable, speedOfCable] = [64 * 1024 * 1024, 1_000 / 8 / 1.048576] as const;
/** Part of a cat's throughput over it that the pods' way has at least, each in its best round: it is 1 where the network is what bounds both.
 *  Further rounds are for what other programs have taken of the first ones, until either comes so near to the network's speed. */
const [leastOverCable, mostRounds, near] = [0.8, 12, 0.85] as const;
/** Has packets of sshd alone go so fast on a machine's `lo`, each way. A burst is two of the largest. */
const cable = `
  tc qdisc add dev lo root handle 1: htb
  lay() {
    tc class add dev lo parent 1: classid 1:$1 htb rate 1gbit burst 128k cburst 128k quantum 65536
    tc filter add dev lo parent 1: protocol ip u32 match ip protocol 6 0xff match ip $2 22 0xffff flowid 1:$1
  }
  lay 1 sport
  lay 2 dport`;

/** `serve ADDRESS` does what each connection's first bytes ask for; `send ADDRESS PORT BYTES` and `take …` ask, and print the seconds;
 *  `many ADDRESS PORT COUNT` does so for connections one after the other, by eight threads. */
const peer = `
import socket, sys, threading, time
what, address, *rest = sys.argv[1:]
room = memoryview(bytearray(1 << 18))
def send(s, left):
    while left > 0: left -= s.send(room[:left])
def take(s, left):
    while left > 0:
        n = s.recv_into(room, min(left, len(room)))
        if not n: raise OSError("it ended early")
        left -= n
def answer(s):
    with s:
        asked, size = s.recv(32, socket.MSG_WAITALL).split()
        take(s, int(size)) if asked == b"send" else send(s, int(size))
        s.sendall(b"+")
def ask(asked, size):
    with socket.create_connection((address, int(rest[0])), 10) as s:
        s.sendall((b"%b %d" % (asked, size)).ljust(32))
        send(s, size) if asked == b"send" else take(s, size)
        if s.recv(1) != b"+": raise OSError("it ended early")
if what == "serve":
    server = socket.create_server((address, 80), backlog=1024)
    print("ready", flush=True)
    while True: threading.Thread(target=answer, args=(server.accept()[0],), daemon=True).start()
began = time.monotonic()
if what == "many":
    def lane():
        for _ in range(int(rest[1]) // 8): ask(b"take", 10)
        done.append(1)
    done = []
    lanes = [threading.Thread(target=lane) for _ in range(8)]
    for t in lanes: t.start()
    for t in lanes: t.join()
    if len(done) < 8: sys.exit("a connection failed")
else: ask(what.encode(), int(rest[1]))
print(time.monotonic() - began)
`;

/** Processor time of a process; none where it has ended meanwhile, as the relay's command does, whose time is then its parent's. */
function secondsOfLiving(pid: number): number {
  try {
    return cpuSeconds(pid);
  } catch (error) {
    if (["ENOENT", "ESRCH"].includes((error as NodeJS.ErrnoException).code ?? "")) return 0;
    throw error;
  }
}

/** The one in the middle. */
const median = (values: readonly number[]) => values.toSorted((a, b) => a - b)[values.length >> 1] ?? Number.NaN;

for (const { interpreter } of relayPrograms("", [])) {
  describe(`throughput of the service tunnel, its relay run by ${interpreter}`, { timeout: 300_000 }, () => {
    let rig: SshdRig;
    let end: ChildProcess;
    let answers: AsyncIterator<string>;
    let door: string;
    const servers: ChildProcess[] = [];
    const inPod = (argv: readonly string[]) => ["ip", "netns", "exec", namespace, ...argv];
    const python = (...words: readonly string[]) => ["python3", "-c", peer, ...words];
    const secondsOf = async (argv: readonly string[]) => Number(await must(argv));
    const secondsOfCat = async (direction: string, size: number) => {
      end.stdin?.write(`${direction} ${size}\n`);
      return Number((await answers.next()).value);
    };
    /** Processor time that those who carry have taken so far, and what they have waited for: all on the machine's network, but who sends
     *  and who takes. Seconds. */
    const spent = () => {
      const network = inodeOf(`/proc/${end.pid}/ns/net`);
      const carriers = listProcesses().filter(
        (one) => one.netns === network && !servers.some(({ pid }) => pid === one.pid),
      );
      return carriers.reduce((sum, { pid }) => sum + secondsOfLiving(pid), 0);
    };
    const measured = async (work: () => Promise<number>) => {
      const before = spent();
      const seconds = await work();
      return { seconds, processor: spent() - before };
    };
    const serve = async (argv: readonly string[]) => {
      const server = start(argv);
      servers.push(server);
      await firstLine(server);
    };

    before(async () => {
      rig = await startSshdRig("way-load");
      await must(["ip", "netns", "add", namespace]);
      await must(
        rig.besideArgv([
          "sh",
          "-ec",
          `ip link add pods type veth peer name eth0 netns ${namespace}
           ip addr add ${machine}/24 dev pods
           ip link set pods up
           ip addr add ${cluster}/32 dev lo
           ip -n ${namespace} addr add ${pod}/24 dev eth0
           ip -n ${namespace} link set eth0 up
           ip -n ${namespace} route add default via ${machine}`,
        ]),
      );
      await serve(rig.besideArgv(python("serve", cluster)));
      await serve(inPod(python("serve", pod)));
      const { port, ...login } = rig.login;
      const knownHostsFile = join(rig.outside, "known_hosts_there");
      writeFileSync(knownHostsFile, readFileSync(login.knownHostsFile, "utf8").replace(`[${own}]:${port}`, own));
      const settings = JSON.stringify({ ...login, knownHostsFile });
      const entry = join(import.meta.dirname, "way-load-entry.ts");
      end = start(rig.besideArgv([...nodeCommand, entry, settings, interpreter, pod, cluster, own]), {
        stdio: ["pipe", "pipe", "inherit"],
      });
      assert.ok(end.stdout);
      answers = createInterface(end.stdout)[Symbol.asyncIterator]();
      door = String((await answers.next()).value);
    });
    after(async () => {
      for (const child of [end, ...servers]) child?.kill();
      await must(["ip", "netns", "del", namespace]);
      await rig?.[Symbol.asyncDispose]();
    });

    /** What a pod does, and what somebody in the cluster does at the door: bytes go up the link, to the machine, or down. */
    const ways = [
      {
        name: "a pod that sends",
        over: "down",
        argv: (size: number) => inPod(python("send", cluster, "80", `${size}`)),
      },
      {
        name: "a pod that receives",
        over: "up",
        argv: (size: number) => inPod(python("take", cluster, "80", `${size}`)),
      },
      {
        name: "a pod that answers requests from the cluster",
        over: "down",
        argv: (size: number) => rig.besideArgv(python("take", own, door, `${size}`)),
      },
      {
        name: "a pod that is sent data from the cluster",
        over: "up",
        argv: (size: number) => rig.besideArgv(python("send", own, door, `${size}`)),
      },
    ];
    for (const { name, over, argv } of ways)
      test(`${name} reaches most of the throughput of cat over the link, with little more CPU`, async (t) => {
        await secondsOf(argv(bytes / 8));
        const [parts, costs]: [number[], number[]] = [[], []];
        for (let round = 0; round < rounds; round += 1) {
          const cat = await measured(() => secondsOfCat(over, bytes));
          const way = await measured(() => secondsOf(argv(bytes)));
          parts.push(cat.seconds / way.seconds);
          costs.push(way.processor / cat.processor);
          const [ofWay, ofCat] = [way, cat].map(
            ({ seconds, processor }) =>
              `${Math.round(bytes / seconds / 2 ** 20)} MiB/s, ${((processor * 2 ** 30) / bytes).toFixed(1)} s of a processor a GiB`,
          );
          t.diagnostic(`${ofWay}; a cat ${ofCat}`);
        }
        t.diagnostic(`${median(parts).toFixed(2)} of a cat's, for ${median(costs).toFixed(2)} of its processor time`);
        assert.ok(median(parts) > leastOfCat, `${parts.map((part) => part.toFixed(2)).join(", ")} of a cat's`);
        assert.ok(
          median(costs) < mostOfCat,
          `${costs.map((cost) => cost.toFixed(2)).join(", ")} of its processor time`,
        );
      });

    for (const { name, over, argv } of ways)
      test(`${name} reaches four fifths of the throughput of cat if the network limits the link`, async (t) => {
        const laid = await run(rig.besideArgv(["sh", "-ec", cable]));
        if (/qdisc kind is unknown|TC classifier not found/.test(laid.stderr))
          return t.skip("the kernel has no htb or no u32, so that nothing bounds the link");
        try {
          assert.equal(laid.code, 0, laid.stderr);
          const speedOf = (seconds: number) => bytesOfCable / seconds / 2 ** 20;
          let [ofWay, ofCat] = [0, 0];
          for (let round = 0; round < mostRounds && Math.min(ofWay, ofCat) < near * speedOfCable; round += 1) {
            ofWay = Math.max(ofWay, speedOf(await secondsOf(argv(bytesOfCable))));
            ofCat = Math.max(ofCat, speedOf(await secondsOfCat(over, bytesOfCable)));
          }
          const said = `${ofWay.toFixed(0)} MiB/s, ${(ofWay / ofCat).toFixed(2)} of a cat's ${ofCat.toFixed(0)}`;
          t.diagnostic(said);
          assert.ok(Math.max(ofWay, ofCat) < 1.1 * speedOfCable, `it goes elsewhere than over the cable: ${said}`);
          assert.ok(ofWay > leastOverCable * ofCat, said);
        } finally {
          await run(rig.besideArgv(["tc", "qdisc", "del", "dev", "lo", "root"]));
        }
      });

    for (const [name, argv] of [
      ["from a pod to the cluster", () => inPod(python("many", cluster, "80", "800"))],
      ["from the cluster to a pod", () => rig.besideArgv(python("many", own, door, "800"))],
    ] as const)
      test(`opens more than two hundred connections a second ${name}, and none is refused`, async (t) => {
        let best = 0;
        // Further rounds are for what other programs have taken of the first one.
        for (let round = 0; round < rounds && best <= leastConnections; round += 1)
          best = Math.max(best, 800 / (await secondsOf(argv())));
        t.diagnostic(`${best.toFixed(0)} a second`);
        assert.ok(best > leastConnections, `${best} a second`);
      });
  });
}
