import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { test } from "node:test";
import { CodedError } from "../../../src/lib/errors.ts";
import { silentLog } from "../../../src/lib/log.ts";
import type { DirectoryEntry } from "../../../src/seams/host.ts";
import { createCsiVolumeLister } from "../../../src/volumes/persistent/csi-volume-lister.ts";
import { unmounters } from "../../../src/volumes/persistent/index.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeHost } from "../../fakes/host.ts";
import { never } from "../../fakes/signals.ts";

const lost = new CodedError("unavailable", "the connection is lost");

for (const { pluginName, listStaged } of unmounters)
  test(`${pluginName}: losing the target while staged volumes are listed fails the listing, without an unhandled rejection`, async () => {
    const clock = fakeClock();
    const fake = fakeHost({ clock });
    const unhandled: unknown[] = [];
    const note = (error: unknown) => void unhandled.push(error);
    process.prependListener("unhandledRejection", note);
    try {
      // All requests that are under way fail at once, as those of a lost link do.
      const link = Promise.withResolvers<DirectoryEntry[]>();
      const fs = { ...fake.fs, list: () => link.promise, readFile: () => link.promise.then(() => Buffer.of()) };
      const host = { ...fake, fs };
      const listing = listStaged(
        {
          host,
          rootDir: "/root",
          clock,
          log: silentLog(),
          drivers: {
            driver() {
              throw lost;
            },
          },
          measures: { deviceUnmapped: () => undefined },
          serialize: (_key, work) => work(),
          listVolumes: createCsiVolumeLister({ host, rootDir: "/root" }),
        },
        [],
        never,
      );
      link.reject(lost);
      await assert.rejects(listing, { code: "unavailable" });
      await sleep(0);
      assert.deepEqual(unhandled, []);
    } finally {
      process.off("unhandledRejection", note);
    }
  });
