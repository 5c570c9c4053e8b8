# Reads lines `BYTES DIRECTORY NAME` (BYTES is `-` to remove a threshold), and prints `crossed NAME` when the kernel reports a crossing.
# A program is needed because cgroup.event_control of cgroup v1 requires an eventfd, which no shell command can create. It ends when its
# standard input is closed, so also when its parent is killed. https://docs.kernel.org/admin-guide/cgroup-v1/memory.html#memory-thresholds
use strict;
use POSIX ();
my %eventfd2 = (x86_64 => 290, aarch64 => 19, riscv64 => 19, i686 => 328, armv7l => 356, ppc64le => 314, s390x => 318);
my $machine = (POSIX::uname())[4];
my $number = $eventfd2{$machine} or die "no events on $machine\n";
$| = 1;
my (%events, %names);
sub tell_of {
  my ($bytes, $directory, $name) = @_;
  my $former = delete $events{$name};
  if (defined $former) { delete $names{$former}; POSIX::close($former); }
  return if $bytes eq '-';
  open(my $usage, '<', "$directory/memory.usage_in_bytes") or return "$directory: $!";
  open(my $control, '>', "$directory/cgroup.event_control") or return "$directory: $!";
  my $event = syscall($number, 0, 0);
  return "eventfd: $!" if $event < 0;
  unless (syswrite($control, "$event " . fileno($usage) . " $bytes")) { my $why = $!; POSIX::close($event); return "$directory: $why"; }
  $events{$name} = $event;
  $names{$event} = $name;
  return;
}
my $said = '';
for (;;) {
  my $watched = '';
  vec($watched, $_, 1) = 1 for 0, keys %names;
  next if select(my $ready = $watched, undef, undef, undef) < 0;
  for my $event (grep { vec($ready, $_, 1) } keys %names) {
    POSIX::read($event, my $count, 8);
    print "crossed $names{$event}\n";
  }
  next unless vec($ready, 0, 1);
  sysread(STDIN, $said, 65536, length $said) or last;
  while ($said =~ s/^(\S+) (\S+) (.*)\n//) {
    my ($name, $why) = ($3, tell_of($1, $2, $3));
    print "failed $why\n" if defined $why;
  }
}
