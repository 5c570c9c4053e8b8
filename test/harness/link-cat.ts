import { once } from "node:events";
import { finished } from "node:stream/promises";
import type { Host } from "../../src/seams/host.ts";
import { argvOf } from "./argv.ts";

const chunk = Buffer.alloc(256 * 1024);

/** Carries so many bytes over a host's link, `up` to a cat there or `down` from one. @returns the seconds that takes. */
export async function secondsOfCat(host: Pick<Host, "spawn">, direction: string, bytes: number): Promise<number> {
  const began = performance.now();
  const command = direction === "up" ? "cat >/dev/null" : `head -c ${bytes} /dev/zero | cat`;
  await using cat = await host.spawn(argvOf(["sh", "-c", command]));
  cat.stdout.resume();
  if (direction === "up")
    for (let sent = 0; sent < bytes; sent += chunk.length) if (!cat.stdin.write(chunk)) await once(cat.stdin, "drain");
  cat.stdin.end();
  await Promise.all([finished(cat.stdout), cat.exited]);
  return (performance.now() - began) / 1_000;
}
