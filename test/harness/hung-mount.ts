import { once } from "node:events";
import type { Cluster } from "./cluster.ts";
import { firstLine } from "./processes.ts";

/** Mounts a file system at `$ARGV[0]` whose server never answers (FUSE), says so, and ends it with its standard input. */
const program = String.raw`
use strict;
use POSIX ();
my ($path) = @ARGV;
my $mount = { x86_64 => 165, aarch64 => 40 }->{(POSIX::uname())[4]} or die "no number of mount(2)";
sysopen(my $fuse, '/dev/fuse', 2) or die "/dev/fuse: $!";
$^F = 255;
my $options = 'fd=' . fileno($fuse) . ',rootmode=40000,user_id=0,group_id=0';
my ($source, $type) = ('nobody', 'fuse');
syscall($mount, $source, $path, $type, 0, $options) == 0 or die "mount: $!";
$| = 1;
print "mounted\n";
1 while sysread(STDIN, my $said, 1);
close $fuse;
system 'umount', '-l', $path;
`;

/** A file system of the runtime's machine that hangs: whoever looks at it waits. */
export async function hangAt(cluster: Cluster, path: string): Promise<AsyncDisposable> {
  const server = cluster.spawnInside(["perl", "-e", program, path], { stdio: ["pipe", "pipe", "inherit"] });
  await firstLine(server);
  return {
    async [Symbol.asyncDispose]() {
      const ended = once(server, "exit");
      server.stdin?.end();
      await ended;
    },
  };
}
