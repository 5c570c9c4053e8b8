# Does what probe.py does.
use strict; use Socket; $| = 1;
use constant PROBE => "graftlet service tunnel probe";
my ($tcp, $udp) = map { my ($host, $port) = split /:/; pack_sockaddr_in($port, inet_aton($host)) } @ARGV;
sub attempt {
  my ($protocol, $seconds, $works) = @_;
  my $open = eval { local $SIG{ALRM} = sub { die }; alarm $seconds; my $is = $works->(); alarm 0; $is };
  print "$protocol ", $open ? "open" : "blocked", "\n";
}
socket(my $s, AF_INET, SOCK_STREAM, 0); socket(my $d, AF_INET, SOCK_DGRAM, 0);
if ($udp) { connect($d, $udp); send($d, PROBE, 0) }
attempt("tcp", 3, sub { connect($s, $tcp) });
attempt("udp", 1, sub { my $data; defined recv($d, $data, 64, 0) && $data eq PROBE }) if $udp;
