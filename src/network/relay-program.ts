import { type Argv, interpreted } from "../seams/command.ts";
/** Relay programs on the target, between pods and the link; each is run by its interpreter from the command line. Arguments: the socket
 *  that leads to graftlet, and the command that fails once the redirect rules are gone.
 *
 *  The firewall redirects a pod's connection to the relay, and the kernel knows its original destination. The program opens a connection to
 *  graftlet, sends `from-address from-port to-address to-port` in a line and joins the two; the first byte of the reply says that graftlet
 *  is connected to the destination. Without it the pod's connection is reset, as a refused one. Datagrams have one socket per destination,
 *  since the kernel does not report their original one, and use standard output and input: `d TO FROM HEX`. Lines of standard input: `pods
 *  ADDRESS…`, the only sources that are accepted; `udp TO…`, the destinations of datagrams, answered by `udp TO=PORT…` for as many as there
 *  are ports; and `d TO FROM HEX`, a reply. Other lines of standard output: `ready PORT`, `lost` when the rules are gone, and `full
 *  ADDRESS` when further connections of a pod are refused.
 *
 *  A connection takes two descriptors. The program raises its limit to the session's hard limit (RLIMIT_NOFILE) and reserves some for UDP
 *  ports and the command. A pod may open another connection while it has fewer than are free, so that no pod takes them all.
 *
 *  Ports are below 1024, so that only root can take one over when the program has ended and the rules remain. */
const python = String.raw`
import errno, os, selectors, socket, struct, subprocess, sys, time
try:
    import resource
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
except (ImportError, OSError, ValueError): pass
limit = os.sysconf("SC_OPEN_MAX")
if limit < 0: limit = 1024
def room(): return min(MOST, (limit - SPARE - len(ports)) // 2) - total
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
    try: client, (address, port) = server.accept()
    except OSError as e:
        if e.errno in (errno.EMFILE, errno.ENFILE): time.sleep(0.02)
        return
    try:
        _, to_port, to = struct.unpack("!HH4s8x", client.getsockopt(socket.SOL_IP, 80, 16))
        to = socket.inet_ntoa(to)
        if address not in pods or (to, to_port) == client.getsockname(): return client.close()
        if held.get(address, 0) >= room(): full(address); abort(client); return client.close()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
        inner = socket.socket(socket.AF_UNIX)
        inner.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 2, 0))
        inner.connect(link)
        inner.sendall(("%s %d %s %d\n" % (address, port, to, to_port)).encode())
    except OSError: return client.close()
    a, b = End(client), End(inner)
    a.peer, b.peer, b.greeted, a.pod = b, a, False, address
    hold(address, 1)
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
    for key, mask in choose.select(max(0, due - time.monotonic())): key.data(mask)
    if time.monotonic() < due: continue
    due = time.monotonic() + 5
    try: stands = subprocess.run(check, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=30).returncode == 0
    except (OSError, subprocess.TimeoutExpired): continue
    if standing and not stands: say("lost")
    standing = stands
`;

const perl = String.raw`
use strict; use Socket; use POSIX qw(:errno_h); use Fcntl;
my ($link, @check) = @ARGV; $SIG{PIPE} = "IGNORE"; $SIG{CHLD} = "DEFAULT";
my (%pods, %ports, %ends, %sockets, %held); my $typed = ""; my ($reading, $writing) = ("", ""); my ($total, $told) = (0, 0);
my $limit = POSIX::sysconf(&POSIX::_SC_OPEN_MAX) // 1024;
sub room { my $most = int(($limit - SPARE - keys %ports) / 2); return ($most > MOST ? MOST : $most) - $total }
sub hold { my ($pod, $change) = @_; $total += $change; $held{$pod} += $change; delete $held{$pod} if !$held{$pod} }
sub full { return if time < $told; $told = time + 10; say_line("full $_[0]") }
sub say_line { my $text = "$_[0]
"; while (length $text) { my $n = syswrite(STDOUT, $text); defined $n or exit 0; substr($text, 0, $n, "") } }
sub nonblocking { fcntl($_[0], F_SETFL, fcntl($_[0], F_GETFL, 0) | O_NONBLOCK) }
sub bound {
  for (my $port = 1023; $port >= 600; $port--) {
    socket(my $s, AF_INET, $_[0], 0) or last;
    if (bind($s, sockaddr_in($port, INADDR_ANY))) { nonblocking($s); return ($s, $port) }
  }
  return if $_[0] == SOCK_DGRAM;
  print STDERR "every port from 600 to 1023 is taken
"; exit 1;
}
sub turn {
  my $e = shift; my $fd = $e->{fd};
  vec($reading, $fd, 1) = (!$e->{ended} && $e->{peer}{out} eq "") ? 1 : 0;
  vec($writing, $fd, 1) = $e->{out} ne "" ? 1 : 0;
}
sub close_both {
  my $e = shift;
  for my $one ($e, $e->{peer}) {
    next if $one->{closed}++;
    vec($reading, $one->{fd}, 1) = 0; vec($writing, $one->{fd}, 1) = 0; delete $ends{$one->{fd}}; close $one->{s};
    hold($one->{pod}, -1) if $one->{pod};
  }
  my $peer = $e->{peer}; delete $peer->{peer}; delete $e->{peer};
}
sub abort { setsockopt($_[0], SOL_SOCKET, SO_LINGER, pack("ii", 1, 0)) }
sub reset_both {
  my $e = shift;
  for my $one ($e, $e->{peer}) { abort($one->{s}) if $one->{pod} && !$one->{closed} }
  close_both($e);
}
sub finish { my $e = shift; $e->{shut} = 1; shutdown($e->{s}, 1) }
sub give {
  my $e = shift;
  my $n = syswrite($e->{s}, $e->{out});
  if (!defined $n) { return 1 if $! == EAGAIN || $! == EINTR; return 0 }
  substr($e->{out}, 0, $n, "");
  finish($e) if $e->{out} eq "" && $e->{peer}{ended};
  return 1;
}
sub take {
  my $e = shift;
  my $n = sysread($e->{s}, my $data, 262144);
  if (!defined $n) { return $! == EAGAIN || $! == EINTR }
  if (!$e->{greeted}) { return 0 if $n == 0; $e->{greeted} = 1; substr($data, 0, 1, ""); return 1 if $data eq "" }
  if ($n) { $e->{peer}{out} = $data; return give($e->{peer}) }
  $e->{ended} = 1; finish($e->{peer}) if $e->{peer}{out} eq "";
  return 1;
}
sub serve {
  my ($e, $r, $w) = @_;
  if (($w && !give($e)) || ($r && !take($e))) { reset_both($e); return }
  my $p = $e->{peer};
  if ($e->{ended} && $p->{ended} && $e->{shut} && $p->{shut}) { close_both($e); return }
  turn($e); turn($p);
}
sub accept_one {
  my $from = accept(my $client, $_[0]);
  if (!$from) { select(undef, undef, undef, 0.02) if $! == EMFILE || $! == ENFILE; return }
  my ($port, $address) = sockaddr_in($from); $address = inet_ntoa($address);
  my $meant = getsockopt($client, 0, 80) or return close $client;
  $meant = substr($meant, 0, 16);
  my ($to_port, $to) = sockaddr_in($meant);
  my ($own_port, $own) = sockaddr_in(getsockname $client);
  return close $client if !$pods{$address} || ($to eq $own && $to_port == $own_port);
  if (($held{$address} // 0) >= room()) { full($address); abort($client); return close $client }
  setsockopt($client, 6, 1, 1); setsockopt($client, SOL_SOCKET, SO_KEEPALIVE, 1); setsockopt($client, 6, 4, 60);
  my $inner;
  socket($inner, AF_UNIX, SOCK_STREAM, 0) && setsockopt($inner, SOL_SOCKET, SO_SNDTIMEO, pack("l!l!", 2, 0)) && connect($inner, sockaddr_un($link)) or return close $client;
  syswrite($inner, "$address $port " . inet_ntoa($to) . " $to_port
") or return close $client;
  nonblocking($client); nonblocking($inner);
  my $a = { s => $client, fd => fileno $client, out => "", pod => $address, greeted => 1 };
  my $b = { s => $inner, fd => fileno $inner, out => "" };
  $a->{peer} = $b; $b->{peer} = $a; $ends{$a->{fd}} = $a; $ends{$b->{fd}} = $b;
  hold($address, 1);
  turn($a); turn($b);
}
sub datagram {
  my ($to, $s) = @_;
  my $from = recv($s, my $data, 65536, 0); return unless defined $from;
  my ($port, $address) = sockaddr_in($from); $address = inet_ntoa($address);
  say_line("d $to $address:$port " . unpack("H*", $data)) if $pods{$address};
}
sub listen_udp {
  my %wanted = map { $_ => 1 } @_;
  for my $to (grep { !$wanted{$_} } keys %ports) {
    my $s = delete($ports{$to})->{s}; vec($reading, fileno $s, 1) = 0; delete $sockets{fileno $s}; close $s;
  }
  for my $to (grep { !$ports{$_} } @_) {
    my ($s, $port) = bound(SOCK_DGRAM); last unless $s; $ports{$to} = { s => $s, port => $port };
    $sockets{fileno $s} = sub { datagram($to, $s) }; vec($reading, fileno $s, 1) = 1;
  }
  say_line(join(" ", "udp", map { "$_=$ports{$_}{port}" } grep { $ports{$_} } @_));
}
sub command {
  my ($word, @rest) = split " ", $_[0];
  if ($word eq "pods") { %pods = map { $_ => 1 } @rest }
  elsif ($word eq "udp") { listen_udp(@rest) }
  elsif ($word eq "d" && $ports{$rest[0]}) {
    my ($address, $port) = split /:/, $rest[1];
    send($ports{$rest[0]}{s}, pack("H*", $rest[2] // ""), 0, sockaddr_in($port, inet_aton($address)));
  }
}
sub typing {
  my $n = sysread(STDIN, my $data, 1048576);
  return if !defined $n && $! == EINTR;
  exit 0 unless $n;
  $typed .= $data;
  while ($typed =~ s/^([^
]*)
//) { command($1) if $1 ne "" }
}
my ($server, $port) = bound(SOCK_STREAM); listen($server, 1024);
$sockets{fileno $server} = sub { accept_one($server) }; $sockets{0} = \&typing;
vec($reading, $_, 1) = 1 for keys %sockets;
say_line("ready $port");
my ($standing, $due) = (0, time + 5);
while (1) {
  my $left = $due - time;
  my ($r, $w) = ($reading, $writing);
  my $n = select($r, $w, undef, $left > 0 ? $left : 0);
  if ($n > 0) {
    for my $fd (keys %sockets) { $sockets{$fd}->() if $sockets{$fd} && vec($r, $fd, 1) }
    my $any = $r | $w;
    while ($any =~ /[^\0]/g) {
      my $first = 8 * ($+[0] - 1);
      for my $fd ($first .. $first + 7) { my $e = $ends{$fd} or next; my ($can_r, $can_w) = (vec($r, $fd, 1), vec($w, $fd, 1)); serve($e, $can_r, $can_w) if $can_r || $can_w }
    }
  }
  next if time < $due;
  $due = time + 5;
  my $pid = fork();
  next if !defined $pid;
  if ($pid == 0) { alarm 30; open STDIN, "<", "/dev/null"; open STDOUT, ">", "/dev/null"; open STDERR, ">", "/dev/null"; { exec @check } POSIX::_exit(1) }
  waitpid($pid, 0);
  next if ($? & 127) == 14;
  my $stands = $? == 0;
  say_line("lost") if $standing && !$stands;
  $standing = $stands;
}
`;

/** Maximum number of concurrent connections, equal to graftlet's limit per node; and descriptors reserved for the command and the
 *  interpreter's own files, in addition to those of UDP ports. */
const mostConnections = 2_304;
const spareDescriptors = 64;

/** Perl's core modules cannot change resource limits, so a shell raises them. */
const raised = String.raw`exec "sh", "-c", 'ulimit -n "$(ulimit -Hn)" 2>/dev/null; exec "$@"', "sh", $^X, "-e", @ARGV`;

const bounded = (program: string) =>
  program.replaceAll("MOST", `${mostConnections}`).replaceAll("SPARE", `${spareDescriptors}`);

/** An interpreter, and the command line that runs the relay by it. */
export interface RelayProgram {
  readonly interpreter: string;
  readonly argv: Argv;
  /** Succeeds if the target has the interpreter. */
  readonly probe: Argv;
}

/** Command lines of the relay, in order of preference.
 *  @param link path of the socket that leads to graftlet.
 *  @param check fails once the rules are gone. */
export function relayPrograms(link: string, check: readonly string[]): readonly RelayProgram[] {
  const probe = (interpreter: "python3" | "perl") => ({ interpreter, probe: interpreted(interpreter, "") });
  return [
    { ...probe("python3"), argv: interpreted("python3", bounded(python), link, ...check) },
    { ...probe("perl"), argv: interpreted("perl", raised, bounded(perl), "--", link, ...check) },
  ];
}
