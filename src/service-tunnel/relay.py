# Forwards pods' traffic to the link; src/service-tunnel/relay.ts describes the protocol.
import collections, errno, os, selectors, socket, struct, subprocess, sys, time
try:
    import resource
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
except (ImportError, OSError, ValueError): pass
# Maximum number of concurrent connections, equal to graftlet's limit per node; and descriptors reserved for the command and the
# interpreter's own files, in addition to those of UDP ports.
MAX_CONNECTIONS, SPARE_DESCRIPTORS = 2304, 64
limit = os.sysconf("SC_OPEN_MAX")
if limit < 0: limit = 1024
# Rate and burst of new connections. Further connections wait, so that the rate stays below the one at which graftlet slows down
# reading from the machine. The pods take turns, so that a pod's many connections do not delay those of others.
RATE, BURST = 1800, 900
# The datagram of probe.py, which is answered here.
PROBE = b"graftlet service tunnel probe"
waiting, allowance, counted = collections.OrderedDict(), BURST, time.monotonic()
def room(): return min(MAX_CONNECTIONS, (limit - SPARE_DESCRIPTORS - len(ports)) // 2) - total
link, check = sys.argv[1], sys.argv[2:]
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
choose = selectors.DefaultSelector()
pods, ports, typed = set(), {}, b""
held, total, told = {}, 0, 0
def hold(pod, change):
    global total
    total += change
    held[pod] = held.get(pod, 0) + change
    if not held[pod]: del held[pod]
def full(pod):
    global told
    if time.monotonic() < told: return
    told = time.monotonic() + 10
    say("full " + pod)
def say(line): os.write(1, (line + "\n").encode())
def bound(kind):
    for port in range(1023, 599, -1):
        try: s = socket.socket(socket.AF_INET, kind)
        except OSError: break
        try: s.bind(("0.0.0.0", port))
        except OSError: s.close(); continue
        s.setblocking(False)
        return s
    if kind == socket.SOCK_STREAM: sys.exit("every port from 600 to 1023 is taken")
class End:
    def __init__(self, s):
        self.s, self.out, self.ended, self.shut, self.mask, self.greeted = s, b"", False, False, 0, True
        self.pod = None
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
        if end.pod: hold(end.pod, -1); end.pod = None
def abort(s): s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
def reset(one):
    for end in (one, one.peer):
        if end.s.family == socket.AF_INET and end.s.fileno() >= 0: abort(end.s)
    close(one)
def accept(_):
    # Accepts several at once: a pod that opens many connections must not fill the backlog and keep others out.
    for _ in range(64):
        try: client, (address, port) = server.accept()
        except OSError as e:
            if e.errno in (errno.EMFILE, errno.ENFILE): time.sleep(0.02)
            return
        enqueue(client, address, port)
def enqueue(client, address, port):
    try:
        _, to_port, to = struct.unpack("!HH4s8x", client.getsockopt(socket.SOL_IP, 80, 16))
        to = socket.inet_ntoa(to)
        if address not in pods or (to, to_port) == client.getsockname(): return client.close()
        if held.get(address, 0) >= room(): full(address); abort(client); return client.close()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
    except OSError: return client.close()
    hold(address, 1)
    waiting.setdefault(address, collections.deque()).append((client, port, to, to_port))
def admit():
    global allowance, counted
    now = time.monotonic()
    allowance = min(BURST, allowance + (now - counted) * RATE)
    counted = now
    while waiting and allowance >= 1:
        allowance -= 1
        address, queue = waiting.popitem(last=False)
        try: forward(address, *queue[0])
        except BlockingIOError:
            # The link does not accept more connections at the moment.
            waiting[address] = queue
            return waiting.move_to_end(address, last=False)
        queue.popleft()
        if queue: waiting[address] = queue
def forward(address, client, port, to, to_port):
    try:
        if address not in pods: raise OSError("no longer a pod")
        inner = socket.socket(socket.AF_UNIX)
        inner.setblocking(False)
        inner.connect(link)
        inner.sendall(("%s %d %s %d\n" % (address, port, to, to_port)).encode())
    except BlockingIOError: inner.close(); raise
    except OSError: hold(address, -1); return client.close()
    a, b = End(client), End(inner)
    a.peer, b.peer, b.greeted, a.pod = b, a, False, address
    a.turn(); b.turn()
def datagram(to, s):
    def on(_):
        try: data, (address, port) = s.recvfrom(65536)
        except OSError: return
        if address not in pods: return
        if data != PROBE: return say("d %s %s:%d %s" % (to, address, port, data.hex()))
        try: s.sendto(data, (address, port))
        except OSError: pass
    return on
def listen_udp(wanted):
    for to in set(ports) - set(wanted):
        s = ports.pop(to); choose.unregister(s); s.close()
    for to in wanted:
        if to in ports: continue
        s = bound(socket.SOCK_DGRAM)
        if not s: break
        ports[to] = s
        choose.register(s, READ, datagram(to, s))
    say(" ".join(["udp"] + ["%s=%d" % (to, ports[to].getsockname()[1]) for to in wanted if to in ports]))
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
    # Waits until about ten connections may be admitted, to handle them together.
    for key, mask in choose.select(max(0, min(due - time.monotonic(), 10 / RATE if waiting else 5))): key.data(mask)
    admit()
    if time.monotonic() < due: continue
    due = time.monotonic() + 5
    try: stands = subprocess.run(check, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=30).returncode == 0
    except (OSError, subprocess.TimeoutExpired): continue
    if standing and not stands: say("lost")
    standing = stands
