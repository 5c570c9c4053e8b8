/** Programs that stand on the target between pods and the link, each run by its interpreter from the command line. Arguments: the socket
 *  that leads to graftlet, and the command that fails once the rules that lead pods here are gone.
 *
 *  A connection of a pod comes here by a rule of the firewall, and the kernel knows where it was meant to go. The program opens one to
 *  graftlet, says `from-address from-port to-address to-port` in a line, and joins the two; the first byte that comes back says that
 *  graftlet is joined to the destination. Without it the pod's connection is reset, as a refused one. Datagrams have a socket for each
 *  destination, since the kernel does not tell theirs, and go through standard output and input: `d TO FROM HEX`. Lines of standard
 *  input: `pods ADDRESS…`, whose connections alone are taken; `udp TO…`, the destinations of datagrams, answered by `udp TO=PORT…`; and
 *  `d TO FROM HEX`, an answer. Lines of standard output besides: `ready PORT`, and `lost` when the rules are gone.
 *
 *  Ports are below 1024, so that nobody but root takes one over when the program has ended while the rules stand. */
const python = String.raw`
import os, selectors, socket, struct, subprocess, sys, time
link, check = sys.argv[1], sys.argv[2:]
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
choose = selectors.DefaultSelector()
pods, ports, typed = set(), {}, b""
def say(line): os.write(1, (line + "\n").encode())
def bound(kind):
    for port in range(1023, 599, -1):
        s = socket.socket(socket.AF_INET, kind)
        try: s.bind(("0.0.0.0", port))
        except OSError: s.close(); continue
        s.setblocking(False)
        return s
    sys.exit("every port from 600 to 1023 is taken")
class End:
    def __init__(self, s):
        self.s, self.out, self.ended, self.shut, self.mask, self.greeted = s, b"", False, False, 0, True
        s.setblocking(False)
    def turn(self):
        mask = (READ if not self.ended and not self.peer.out else 0) | (WRITE if self.out else 0)
        if mask == self.mask: return
        if not self.mask: choose.register(self.s, mask, self.on)
        elif not mask: choose.unregister(self.s)
        else: choose.modify(self.s, mask, self.on)
        self.mask = mask
    def on(self, mask):
        if self.s.fileno() < 0: return
        try:
            if mask & WRITE: self.write()
            if mask & READ: self.read()
        except BlockingIOError: pass
        except OSError: return reset(self)
        if self.ended and self.peer.ended and self.shut and self.peer.shut: return close(self)
        self.turn(); self.peer.turn()
    def read(self):
        data = self.s.recv(262144)
        if not self.greeted:
            if not data: raise OSError("refused")
            self.greeted, data = True, data[1:]
            if not data: return
        if data:
            self.peer.out = data
            self.peer.write()
        else:
            self.ended = True
            if not self.peer.out: self.peer.finish()
    def write(self):
        try: self.out = self.out[self.s.send(self.out):]
        except BlockingIOError: return
        if not self.out and self.peer.ended: self.finish()
    def finish(self):
        self.shut = True
        self.s.shutdown(socket.SHUT_WR)
def close(one):
    for end in (one, one.peer):
        if end.mask: choose.unregister(end.s); end.mask = 0
        end.s.close()
def reset(one):
    for end in (one, one.peer):
        if end.s.family == socket.AF_INET and end.s.fileno() >= 0:
            end.s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    close(one)
def accept(_):
    try: client, (address, port) = server.accept()
    except OSError: return
    try:
        _, to_port, to = struct.unpack("!HH4s8x", client.getsockopt(socket.SOL_IP, 80, 16))
        to = socket.inet_ntoa(to)
        if address not in pods or (to, to_port) == client.getsockname(): return client.close()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        inner = socket.socket(socket.AF_UNIX)
        inner.connect(link)
        inner.sendall(("%s %d %s %d\n" % (address, port, to, to_port)).encode())
    except OSError: return client.close()
    a, b = End(client), End(inner)
    a.peer, b.peer, b.greeted = b, a, False
    a.turn(); b.turn()
def datagram(to, s):
    def on(_):
        try: data, (address, port) = s.recvfrom(65536)
        except OSError: return
        if address in pods: say("d %s %s:%d %s" % (to, address, port, data.hex()))
    return on
def listen_udp(wanted):
    for to in set(ports) - set(wanted):
        s = ports.pop(to); choose.unregister(s); s.close()
    for to in wanted:
        if to in ports: continue
        ports[to] = bound(socket.SOCK_DGRAM)
        choose.register(ports[to], READ, datagram(to, ports[to]))
    say(" ".join(["udp"] + ["%s=%d" % (to, ports[to].getsockname()[1]) for to in wanted]))
def command(line):
    global pods
    word, *rest = line.split()
    if word == "pods": pods = set(rest)
    elif word == "udp": listen_udp(rest)
    elif word == "d" and rest[0] in ports:
        address, port = rest[1].split(":")
        try: ports[rest[0]].sendto(bytes.fromhex(rest[2] if len(rest) > 2 else ""), (address, int(port)))
        except OSError: pass
def typing(_):
    global typed
    data = os.read(0, 1 << 20)
    if not data: sys.exit(0)
    *lines, typed = (typed + data).split(b"\n")
    for line in lines:
        if line: command(line.decode())
server = bound(socket.SOCK_STREAM)
server.listen(1024)
choose.register(server, READ, accept)
choose.register(0, READ, typing)
say("ready %d" % server.getsockname()[1])
standing, due = False, time.monotonic() + 5
while True:
    for key, mask in choose.select(max(0, due - time.monotonic())): key.data(mask)
    if time.monotonic() < due: continue
    due = time.monotonic() + 5
    stands = subprocess.run(check, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0
    if standing and not stands: say("lost")
    standing = stands
`;

/** An interpreter, and the command line that runs the relay by it. */
export interface RelayProgram {
  readonly interpreter: string;
  readonly argv: readonly string[];
}

/** Command lines of the relay, the best first.
 *  @param link path of the socket that leads to graftlet. @param check fails once the rules are gone. */
export function relayPrograms(link: string, check: readonly string[]): readonly RelayProgram[] {
  return [{ interpreter: "python3", argv: ["python3", "-c", python, link, ...check] }];
}
