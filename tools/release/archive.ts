import { promisify } from "node:util";
import { gzip } from "node:zlib";
import { type Header, extract, pack } from "tar-stream";

/** A file, folder or link of a tar archive, in memory; `data` is empty for what has none. */
export interface Entry {
  readonly header: Partial<Header> & Pick<Header, "name">;
  readonly data: Buffer;
}

/** A file that belongs to root, as a release has it. @param date seconds since the epoch. */
export function fileEntry(name: string, data: Buffer | string, mode: number, date: number): Entry {
  const header = { name, mode, mtime: new Date(date * 1000), type: "file", uid: 0, gid: 0 } as const;
  return { header, data: Buffer.from(data) };
}

/** A tar archive of these entries, in this order; its bytes depend on nothing else. */
export async function tarOf(entries: readonly Entry[]): Promise<Buffer> {
  const archive = pack();
  const chunks: Promise<Buffer> = collect(archive);
  for (const { header, data } of entries) archive.entry({ ...header, size: data.length }, data);
  archive.finalize();
  return chunks;
}

/** The entries of a tar archive, in its order. @throws when it is not one. */
export async function entriesOf(tar: Buffer): Promise<Entry[]> {
  const reader = extract();
  reader.end(tar);
  const entries: Entry[] = [];
  for await (const source of reader) entries.push({ header: source.header, data: await collect(source) });
  return entries;
}

/** The same archive with one date for everything in it. BuildKit's rewrite-timestamp does alike, which the builder of every Docker Engine
 *  lacks. @param date seconds since the epoch.
 *  @see https://docs.docker.com/build/ci/github-actions/reproducible-builds/ */
export async function settledTar(tar: Buffer, date: number): Promise<Buffer> {
  const mtime = new Date(date * 1000);
  return tarOf(
    (await entriesOf(tar)).map(({ header: { pax, ...header }, data }) => {
      const kept = Object.entries(pax ?? {}).filter(([key]) => !["mtime", "atime", "ctime"].includes(key));
      const settled = { ...header, mtime };
      return { header: kept.length === 0 ? settled : { ...settled, pax: Object.fromEntries<unknown>(kept) }, data };
    }),
  );
}

/** Compressed; its header has no date. */
export function gzipped(bytes: Buffer): Promise<Buffer> {
  return promisify(gzip)(bytes);
}

async function collect(stream: AsyncIterable<unknown>): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}
