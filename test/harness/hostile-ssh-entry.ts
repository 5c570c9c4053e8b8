// A hostile target: an SSH server that serves this machine's commands and files, until it is told to attack. Run by startHostileSsh;
// process.argv: the attack's name, a file with the host key. Says its port in a line; a line "begin" begins the attack, on this connection
// and on later ones; "attack NAME" begins another one, "rest" ends all attacks and cuts the connections; the end of its input ends it.
import { type ChildProcess, spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { type AddressInfo, type Socket, connect, createServer } from "node:net";
import { createInterface } from "node:readline";
import type { Duplex } from "node:stream";
import ssh2, { type Connection, type ServerChannel } from "ssh2";
import { type HostileConnection, type Session, type SshAttack, sshAttacks } from "./hostile-ssh-attacks.ts";

const [name = "", hostKeyFile = ""] = process.argv.slice(2);
let attack = attackNamed(name);
const forwards: string[] = [];
const sessions: Session[] = [];
const children = new Set<ChildProcess>();
const sockets = new Set<Socket>();
let newest: HostileConnection | undefined;
let begun = false;
/** A connection works for so long before it is attacked, too, milliseconds. */
const againMs = 3_000;

const run = (channel: ServerChannel, argv: readonly string[], change = (data: Buffer) => data): void => {
  const [program = "", ...args] = argv;
  const child = spawn(program, args, { cwd: "/", detached: true });
  children.add(child);
  child.once("exit", () => children.delete(child));
  channel.on("error", () => undefined);
  child.stdin.on("error", () => undefined);
  child.stdout.on("data", (data: Buffer) => void channel.write(change(data)));
  child.stderr.on("data", (data: Buffer) => void channel.stderr.write(data));
  channel.on("data", (data: Buffer) => void child.stdin.write(data));
  channel.on("end", () => child.stdin.end());
  child.on("close", (code) => {
    channel.exit(code ?? 137);
    channel.end();
  });
  channel.on("close", () => child.kill("SIGKILL"));
};

const joined = (there: Duplex, here: Duplex): void => {
  there.on("error", () => here.destroy());
  here.on("error", () => there.destroy());
  there.pipe(here).pipe(there);
};

function begin(): void {
  if (newest) attack.begin?.(newest, sessions, forwards);
}

function attackNamed(wanted: string): SshAttack {
  const found = sshAttacks[wanted];
  if (!found) throw new Error(`there is no attack of the name ${wanted}`);
  return found;
}

/** Serves a new connection. */
function serve(plain: Connection): void {
  const connection = plain as HostileConnection;
  newest = connection;
  sessions.length = 0;
  forwards.length = 0;
  connection.on("error", () => undefined);
  connection.on("authentication", (ctx) => ctx.accept());
  connection.on("session", (accept) => {
    const session = accept() as ReturnType<typeof accept> & { readonly _chanInfo: { outgoing: { id: number } } };
    session.on("exec", (take, _reject, { command }) => {
      sessions.push({ id: session._chanInfo.outgoing.id, command });
      run(take(), ["/bin/sh", "-c", command]);
    });
    session.on("subsystem", (take) => run(take(), ["/usr/lib/openssh/sftp-server"], attack.sftp));
  });
  connection.on("request", (accept, _reject, _kind, info: object) => {
    if ("socketPath" in info) forwards.push(String(info.socketPath));
    accept?.();
  });
  connection.on("tcpip", (accept, _reject, { destIP, destPort }) => joined(accept(), connect(destPort, destIP)));
  connection.on("openssh.streamlocal", (accept, _reject, { socketPath }) =>
    joined(accept(), connect({ path: socketPath })),
  );
  attack.connected?.(connection);
  if (begun) connection.once("ready", () => setTimeout(begin, againMs));
}

const hostKeys = [readFileSync(hostKeyFile)];
const listener = createServer((socket: Socket) => {
  socket.on("error", () => undefined);
  sockets.add(socket);
  socket.once("close", () => sockets.delete(socket));
  if (attack.raw) attack.raw(socket);
  else new ssh2.Server({ hostKeys, ...attack.server }, serve).injectSocket(socket);
});
listener.listen(0, "127.0.0.1", () => console.log((listener.address() as AddressInfo).port));
const lines = createInterface({ input: process.stdin });
lines.on("line", (line) => {
  const [word, wanted] = line.split(/ (.*)/);
  if (word === "attack") attack = attackNamed(wanted ?? "");
  if (word === "rest") attack = {};
  begun = word !== "rest";
  // An attack that has no beginning of its own is one on new connections.
  if (attack.begin) begin();
  else if (word !== "begin") for (const socket of sockets) socket.destroy();
  console.log("begun");
});
lines.on("close", () => {
  for (const { pid } of children) if (pid !== undefined) killGroup(pid);
  process.exit(0);
});

function killGroup(leader: number): void {
  try {
    process.kill(-leader, "SIGKILL");
  } catch {
    // It has ended.
  }
}
