# Forwards standard input and output to a TCP connection; arguments: a loopback address, a port.
use IO::Socket::IP;
use Socket qw(AI_NUMERICHOST);
$SIG{PIPE} = "IGNORE";
my $peer = IO::Socket::IP->new(PeerHost => $ARGV[0], PeerPort => $ARGV[1], GetAddrInfoFlags => AI_NUMERICHOST)
  or die "$!\n";
syswrite STDERR, "connected\n";
open STDERR, ">", "/dev/null";
sub copy {
  my ($from, $to) = @_;
  while (sysread $from, my $data, 65536) {
    for (my $at = 0; $at < length $data; ) {
      my $written = syswrite $to, $data, length($data) - $at, $at;
      return if !defined $written;
      $at += $written;
    }
  }
}
my $sender = fork;
if ($sender == 0) { close STDOUT; copy(STDIN, $peer); shutdown $peer, 1; exit 0 }
close STDIN;
copy($peer, STDOUT);
close STDOUT;
waitpid $sender, 0;
