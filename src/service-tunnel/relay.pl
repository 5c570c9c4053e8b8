# Forwards pods' traffic to the link, as relay.py does; src/service-tunnel/relay.ts describes the protocol.
use strict; use Socket; use POSIX qw(:errno_h); use Fcntl;
# Maximum number of concurrent connections, equal to graftlet's limit per node; and descriptors reserved for the command and the
# interpreter's own files, in addition to those of UDP ports.
use constant { MAX_CONNECTIONS => 2304, SPARE_DESCRIPTORS => 64 };
# Rate and burst of new connections. Further connections wait, and the pods take turns, as in relay.py.
use constant { RATE => 1800, BURST => 900 };
# The datagram of probe.pl, which is answered here.
use constant PROBE => "graftlet service tunnel probe";
my ($link, @check) = @ARGV; $SIG{PIPE} = "IGNORE"; $SIG{CHLD} = "DEFAULT";
my (%pods, %ports, %ends, %sockets, %held); my $typed = ""; my ($reading, $writing) = ("", ""); my ($total, $told) = (0, 0);
# A monotonic clock; perl-base has no Time::HiRes.
my $ticks = POSIX::sysconf(&POSIX::_SC_CLK_TCK); sub seconds { my ($since_boot) = POSIX::times(); return $since_boot / $ticks }
my (%waiting, @turns); my ($allowance, $counted) = (BURST, seconds());
my $limit = POSIX::sysconf(&POSIX::_SC_OPEN_MAX) // 1024;
sub room { my $most = int(($limit - SPARE_DESCRIPTORS - keys %ports) / 2); return ($most > MAX_CONNECTIONS ? MAX_CONNECTIONS : $most) - $total }
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
sub accept_some {
  for (1 .. 64) {
    my $from = accept(my $client, $_[0]);
    if (!$from) { select(undef, undef, undef, 0.02) if $! == EMFILE || $! == ENFILE; return }
    enqueue($client, $from);
  }
}
sub enqueue {
  my ($client, $from) = @_;
  my ($port, $address) = sockaddr_in($from); $address = inet_ntoa($address);
  my $meant = getsockopt($client, 0, 80) or return close $client;
  $meant = substr($meant, 0, 16);
  my ($to_port, $to) = sockaddr_in($meant);
  my ($own_port, $own) = sockaddr_in(getsockname $client);
  return close $client if !$pods{$address} || ($to eq $own && $to_port == $own_port);
  if (($held{$address} // 0) >= room()) { full($address); abort($client); return close $client }
  setsockopt($client, 6, 1, 1); setsockopt($client, SOL_SOCKET, SO_KEEPALIVE, 1); setsockopt($client, 6, 4, 60);
  hold($address, 1);
  push @turns, $address if !$waiting{$address};
  push @{ $waiting{$address} }, [$client, $port, $to, $to_port];
}
sub admit {
  my $now = seconds(); $allowance += ($now - $counted) * RATE; $counted = $now;
  $allowance = BURST if $allowance > BURST;
  while (@turns && $allowance >= 1) {
    $allowance--;
    my $address = $turns[0]; my $queue = $waiting{$address}; my $next = $queue->[0];
    my $done = forward($address, @$next);
    # The link does not accept more connections at the moment.
    return if !defined $done;
    shift @turns; shift @$queue;
    if (!$done) { hold($address, -1); close $next->[0] }
    if (@$queue) { push @turns, $address } else { delete $waiting{$address} }
  }
}
sub forward {
  my ($address, $client, $port, $to, $to_port) = @_;
  return 0 if !$pods{$address};
  my $inner;
  socket($inner, AF_UNIX, SOCK_STREAM, 0) or return 0;
  nonblocking($inner);
  connect($inner, sockaddr_un($link)) or return $! == EAGAIN ? undef : 0;
  syswrite($inner, "$address $port " . inet_ntoa($to) . " $to_port
") or return 0;
  nonblocking($client);
  my $a = { s => $client, fd => fileno $client, out => "", pod => $address, greeted => 1 };
  my $b = { s => $inner, fd => fileno $inner, out => "" };
  $a->{peer} = $b; $b->{peer} = $a; $ends{$a->{fd}} = $a; $ends{$b->{fd}} = $b;
  turn($a); turn($b);
  return 1;
}
sub datagram {
  my ($to, $s) = @_;
  my $from = recv($s, my $data, 65536, 0); return unless defined $from;
  my ($port, $address) = sockaddr_in($from); $address = inet_ntoa($address);
  return if !$pods{$address};
  if ($data eq PROBE) { send($s, $data, 0, $from) } else { say_line("d $to $address:$port " . unpack("H*", $data)) }
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
$sockets{fileno $server} = sub { accept_some($server) }; $sockets{0} = \&typing;
vec($reading, $_, 1) = 1 for keys %sockets;
say_line("ready $port");
my ($standing, $due) = (0, time + 5);
while (1) {
  my $left = $due - time; my $pause = 10 / RATE;
  $left = $pause if @turns && $left > $pause;
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
  admit();
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
