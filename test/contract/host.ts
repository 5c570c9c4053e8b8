import assert from "node:assert/strict";
import { after, before, describe } from "node:test";
import type { Host } from "../../src/seams/host.ts";
import { changeContract } from "./host-changes.ts";
import { commandContract } from "./host-commands.ts";
import { fileContract } from "./host-files.ts";
import { socketContract } from "./host-sockets.ts";

/** A host for the contract. It has the programs `echo`, `cat`, `sleep`, `true`, `false`. */
export interface HostUnderTest extends AsyncDisposable {
  readonly host: Host;
  /** An absolute folder on the target for a test's files, without links in its path. */
  readonly dir: string;
  makeFifo(path: string): Promise<void>;
  makeSocket(path: string): Promise<void>;
  /** Fills a directory with what is hard to remove: names that are not UTF-8, paths that are too long, many files. */
  makeAwkward(path: string): Promise<void>;
  /** Keeps putting the second in the first's place and back, as fast as it can, until it is disposed of. */
  swap(path: string, other: string): Promise<AsyncDisposable>;
  /** Lets nothing change a file, root neither, until it is disposed of. */
  freeze(path: string): Promise<AsyncDisposable>;
  /** Mounts another file system on a directory. */
  mount(path: string): Promise<AsyncDisposable>;
  /** Unmounts what the host has mounted; undefined if its mounts are not seen where its files are written. */
  readonly unmount: ((path: string) => Promise<void>) | undefined;
}

/** What a part of the contract works on: the host, and a folder of each test's own. */
export interface Bench {
  current(): HostUnderTest;
  /** A fresh folder, made by the host itself. */
  folder(): Promise<string>;
}

/** What every Host means by its operations. @param make gives a host; disposed of at the end. */
export function hostContract(name: string, make: () => Promise<HostUnderTest>): void {
  describe(`Host contract: ${name}`, () => {
    let made: HostUnderTest | undefined;
    let folders = 0;
    before(async () => {
      made = await make();
    });
    after(async () => made?.[Symbol.asyncDispose]());
    const current = (): HostUnderTest => {
      assert.ok(made, "the host could not be made");
      return made;
    };
    const folder = async () => {
      const { host, dir } = current();
      const path = `${dir}/${++folders}`;
      await host.fs.apply([{ kind: "mkdir", path }]);
      return path;
    };
    const bench = { current, folder };
    fileContract(bench);
    changeContract(bench);
    commandContract(bench);
    socketContract(bench);
  });
}
