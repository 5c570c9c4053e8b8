import { spawn } from "node:child_process";
import { connect, createServer, type Server, type Socket } from "node:net";
import type { Duplex } from "node:stream";
import ssh2, { type AuthContext, type Connection, type ParsedKey, type ServerChannel } from "ssh2";

/** What an SSH server has seen of its clients so far. */
export interface SshTraffic {
  /** Connections that came in, whether or not they logged in. */
  readonly connections: number;
  readonly logins: number;
  /** Connections that are open now. */
  readonly open: number;
  readonly bytesReceived: number;
  /** Commands and SFTP servers that were started. */
  readonly commands: number;
}

export interface SshMachineOptions {
  /** Private key, PEM. */
  readonly hostKey: string;
  /** The only key that root may log in with, in the format of authorized_keys. */
  readonly loginKey: string;
  /** The process whose mounts and host name the machine has. */
  readonly holder: number;
  readonly address: string;
  readonly port: number;
}

/** Sessions of a connection that OpenSSH allows (MaxSessions). */
const maxSessions = 10;
const sftpServer = "/usr/lib/openssh/sftp-server";
/** The environment of commands, which is not that of the tests: theirs may be of an SSH connection of its own. */
const env = { HOME: "/root", USER: "root", SHELL: "/bin/sh", PATH: "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin" };

/** Starts the SSH server of a machine that has mounts of its own and otherwise is this one. Commands run there, its files are served by
 *  OpenSSH's SFTP server, and connections are forwarded to its sockets. @returns its traffic so far, when called. */
export async function startSshMachine(options: SshMachineOptions): Promise<() => SshTraffic> {
  const { address, port, hostKey } = options;
  const loginKey = ssh2.utils.parseKey(options.loginKey);
  if (loginKey instanceof Error) throw loginKey;
  const counts = { connections: 0, logins: 0, commands: 0, bytesBefore: 0 };
  const sockets = new Set<Socket>();
  const ssh = new ssh2.Server({ hostKeys: [hostKey] }, (connection) => {
    connection.on("error", () => undefined);
    connection.on("authentication", (context) => answerLogin(context, loginKey));
    connection.once("ready", () => {
      counts.logins += 1;
      serve(connection, options.holder, () => void (counts.commands += 1));
    });
  });
  const net = createServer({ noDelay: true }, (socket) => {
    counts.connections += 1;
    sockets.add(socket);
    socket.on("error", () => undefined);
    socket.once("close", () => {
      sockets.delete(socket);
      counts.bytesBefore += socket.bytesRead;
    });
    ssh.injectSocket(socket);
  });
  await new Promise<void>((resolve, reject) => net.once("error", reject).listen(port, address, resolve));
  return () => {
    const { bytesBefore, ...counted } = counts;
    const bytes = [...sockets].reduce((sum, { bytesRead }) => sum + bytesRead, bytesBefore);
    return { ...counted, open: sockets.size, bytesReceived: bytes };
  };
}

/** Lets root in with that key and its signature alone. */
function answerLogin(context: AuthContext, loginKey: ParsedKey): void {
  if (context.method !== "publickey" || context.username !== "root") return context.reject(["publickey"]);
  const { key, blob, signature, hashAlgo } = context;
  const isKnown = key.data.equals(loginKey.getPublicSSH());
  // Without a signature, the client asks whether it may log in with this key. A malformed signature gives an Error.
  const verified: unknown = !signature || (blob && loginKey.verify(blob, signature, hashAlgo));
  return isKnown && verified === true ? context.accept() : context.reject(["publickey"]);
}

function serve(connection: Connection, holder: number, onCommand: () => void): void {
  let sessions = 0;
  const run = (channel: ServerChannel, argv: readonly string[]) => {
    onCommand();
    runCommand(channel, [`--mount=/proc/${holder}/ns/mnt`, `--uts=/proc/${holder}/ns/uts`, "--", ...argv]);
  };
  connection.on("session", (accept, reject) => {
    if (sessions >= maxSessions) return reject();
    sessions += 1;
    const session = accept();
    session.once("close", () => void (sessions -= 1));
    session.on("exec", (take, _reject, { command }) => run(take(), ["/bin/sh", "-c", command]));
    session.on("subsystem", (take, refuse, { name }) => (name === "sftp" ? run(take(), [sftpServer]) : refuse()));
  });
  const listeners = new Map<string, Server>();
  connection.on("request", (accept, reject, name: string, info: object) => {
    if (!("socketPath" in info)) return reject?.();
    const socketPath = String(info.socketPath);
    listeners.get(socketPath)?.close();
    if (name !== "streamlocal-forward@openssh.com") return accept?.();
    const listener = listenFor(connection, socketPath, `/proc/${holder}/root${socketPath}`);
    listeners.set(socketPath, listener);
    listener.once("listening", () => accept?.()).on("error", () => reject?.());
  });
  connection.once("close", () => {
    for (const listener of listeners.values()) listener.close();
  });
  connection.on("tcpip", (accept, reject, { destIP, destPort }) =>
    forward(connect(destPort, destIP), accept, () => reject()),
  );
  connection.on("openssh.streamlocal", (accept, reject, { socketPath }) =>
    forward(connect(`/proc/${holder}/root${socketPath}`), accept, () => reject()),
  );
}

/** Runs a command in the machine as sshd does: in a process group of its own, which its connection's end does not end. */
function runCommand(channel: ServerChannel, argv: readonly string[]): void {
  const child = spawn("nsenter", argv, { cwd: "/", detached: true, env });
  for (const stream of [channel, child.stdin, child.stdout, child.stderr]) stream.on("error", () => undefined);
  child.stdout.pipe(channel, { end: false });
  child.stderr.pipe(channel.stderr, { end: false });
  channel.pipe(child.stdin);
  child.once("error", () => channel.close());
  child.once("close", (code, signal) => {
    if (signal) channel.exit(signal.replace(/^SIG/, ""));
    else channel.exit(code ?? 1);
    channel.end();
  });
  channel.once("close", () => {
    child.stdin.end();
    child.stdout.destroy();
    child.stderr.destroy();
  });
}

/** Listens on a socket of the machine, and passes its connections on to the client. @param path of the socket as this process sees it. */
function listenFor(connection: Connection, socketPath: string, path: string): Server {
  const listener = createServer((socket) => {
    socket.on("error", () => undefined);
    connection.openssh_forwardOutStreamLocal(socketPath, (error, channel) => {
      if (error) return void socket.destroy();
      channel.on("error", () => socket.destroy());
      channel.once("close", () => socket.destroy());
      socket.once("close", () => channel.close());
      socket.pipe(channel).pipe(socket);
    });
  });
  return listener.listen(path);
}

function forward(socket: Socket, accept: () => Duplex, reject: () => void): void {
  socket.once("error", reject);
  socket.once("connect", () => {
    socket.off("error", reject);
    const channel = accept();
    channel.on("error", () => socket.destroy());
    socket.on("error", () => channel.destroy());
    channel.once("close", () => socket.destroy());
    socket.pipe(channel).pipe(socket);
  });
}
