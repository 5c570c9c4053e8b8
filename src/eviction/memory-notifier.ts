import { EventEmitter, once } from "node:events";
import { readLines } from "../host/command-lines.ts";
import type { Clock } from "../lib/clock.ts";
import { hasCode, messageOf } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import { paced } from "../lib/paced.ts";
import { patrol } from "../lib/patrol.ts";
import type { Service } from "../lib/service-group.ts";
import type { Presence } from "../pipeline.ts";
import type { Host, HostProcess } from "../seams/host.ts";
import type { MemoryBound } from "./memory-bounds.ts";
import { interpreted } from "../seams/command.ts";

export interface MemoryNotifierDeps {
  readonly host: Pick<Host, "spawn">;
  readonly presence?: Presence;
  readonly clock: Clock;
  readonly log: Logger;
}

export interface MemoryNotifier extends Service {
  /** Sets the bounds whose crossing the kernel reports, replacing the previous ones. */
  tellOf(bounds: readonly MemoryBound[]): void;
  /** Resolves when a bound is crossed; at once if that happened since it last resolved. Also resolves when the signal aborts. */
  crossed(signal: AbortSignal): Promise<void>;
}

/** Delay before the listener is restarted after its end, milliseconds. */
const retryMs = 10_000;
/** Minimum interval between two reported crossings, milliseconds: each triggers the eviction manager. */
const newsMs = 1_000;
/** Maximum number and length (characters) of logged reasons, which come from the target. */
const [maxReasons, maxReasonLength] = [16, 512];

/** Reads lines `BYTES DIRECTORY NAME` (`-` removes a bound) and prints `crossed NAME` when the kernel reports a crossing:
 *  cgroup.event_control of cgroup v1 needs an eventfd, which no command creates. Ends with its standard input, also if its
 *  parent is killed. @see https://docs.kernel.org/admin-guide/cgroup-v1/memory.html#memory-thresholds */
const listening = String.raw`
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
}`;

/** Subscribes to the target kernel's memory cgroup notifications (KubeletConfiguration.kernelMemcgNotification). Without perl
 *  or kernel support logs that once; memory is then observed at the usual interval only.
 *  @see
 *  https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#kubelet-may-not-observe-memory-pressure-right-away */
export function createMemoryNotifier(deps: MemoryNotifierDeps): MemoryNotifier {
  const { host, clock, log } = deps;
  const told = new Set<string>();
  const failed = (reason: string) => {
    const why = reason.slice(0, maxReasonLength);
    if (told.has(why) || told.size >= maxReasons) return;
    told.add(why);
    log.warn({ why }, "eviction manager: memory cgroup notifications unavailable");
  };
  let bounds: readonly MemoryBound[] = [];
  let listener: HostProcess | undefined;
  const crossings = new EventEmitter();
  let isNews = false;

  const wake = paced(
    () => {
      isNews = true;
      crossings.emit("crossed");
    },
    newsMs,
    clock,
  );
  const heard = (line: string) => {
    const [, why] = /^failed (.*)$/.exec(line) ?? [];
    if (why !== undefined) return failed(why);
    const [, name] = /^crossed ((?:hard|soft) (?:allocatable )?memory)$/.exec(line) ?? [];
    if (name === undefined) return;
    log.info({}, `eviction manager: ${name} eviction threshold crossed`);
    wake();
  };
  const say = (now: readonly MemoryBound[], former: readonly MemoryBound[] = []) => {
    const over = former.filter(({ name }) => !now.some((bound) => bound.name === name));
    const lines = [
      ...over.map(({ directory, name }) => `- ${directory} ${name}\n`),
      ...now.map(({ bytes, directory, name }) => `${bytes} ${directory} ${name}\n`),
    ];
    listener?.stdin.write(lines.join(""));
  };
  const listen = async (signal: AbortSignal) => {
    try {
      listener = await host.spawn(interpreted("perl", listening), signal);
      listener.stdin.on("error", () => {});
      say(bounds);
      const why = await readLines(listener, heard, signal);
      if (!signal.aborted && why !== "") failed(why);
    } catch (error) {
      if (signal.aborted || hasCode(error, "unavailable")) return;
      failed(messageOf(error));
    } finally {
      listener = undefined;
    }
  };
  return {
    ...patrol({ ...deps, name: "memory-notifier", everyMs: retryMs }, listen),
    tellOf(now) {
      say(now, bounds);
      bounds = now;
    },
    async crossed(signal) {
      if (!isNews) await once(crossings, "crossed", { signal }).catch(() => undefined);
      if (!signal.aborted) isNews = false;
    },
  };
}
