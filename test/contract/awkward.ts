import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import type { HostUnderTest } from "./host.ts";

/** Names no text has, a tree of 12 000 characters from top to bottom, links at every turn, and 50 000 files. */
const fill = String.raw`
chdir $ARGV[0] or die;
sub file { open(my $f, ">", $_[0]) or die "$_[0]: $!" }
mkdir "\xfe"; file("\xfe/\xff"); file("\xff"); mkdir "\xfe/.hidden"; file("\xfe/.hidden/..three");
for ("-rf", " ", "new\nline", "*", "\\", "dots...", ".graftlet-2") { mkdir $_; file("$_/$_"); symlink("/", "$_/root") }
mkdir "many"; file("many/$_") for 1..50000;
mkdir "wide"; for (1..300) { mkdir "wide/$_"; file("wide/$_/f") }
for (1..60) { my $name = "d" x 200; mkdir $name or die; symlink("..", "up"); chdir $name or die }
file("bottom");
`;

/** Goes on until its input ends; a rename that finds nothing is passed over, as what is removed meanwhile is not there. */
const exchange = String.raw`
my ($a, $b) = @ARGV; $| = 1; print "up\n";
for (my $over = ""; !select($over, undef, undef, 0); $over = "", vec($over, 0, 1) = 1) {
  for (1..100) { rename($a, "$a.aside"); rename($b, $a); rename($a, $b); rename("$a.aside", $a) }
}
`;

/** Contract of a machine with perl and chattr.
 *  @param must runs a command there, to its end @param begin starts one there */
export function awkwardThere(
  must: (argv: readonly string[]) => Promise<unknown>,
  begin: (argv: readonly string[]) => ChildProcess,
): Pick<HostUnderTest, "makeAwkward" | "swap" | "freeze"> {
  return {
    makeAwkward: async (path) => void (await must(["perl", "-e", fill, path])),
    async swap(path, other) {
      const swapping = begin(["perl", "-e", exchange, path, other]);
      await once(swapping.stdout ?? swapping, "data");
      return {
        async [Symbol.asyncDispose]() {
          const ended = once(swapping, "exit");
          swapping.stdin?.end();
          await ended;
        },
      };
    },
    async freeze(path) {
      await must(["chattr", "+i", path]);
      return { [Symbol.asyncDispose]: async () => void (await must(["chattr", "-i", path])) };
    },
  };
}
