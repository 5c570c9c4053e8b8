import { converse, type Conversation } from "./conversation.ts";
import { must, start } from "./processes.ts";

/** Rows and columns. */
export interface Size {
  readonly rows: number;
  readonly columns: number;
}

/** A program at a terminal: what it shows is its standard output, what is typed its input. */
export interface Terminal extends Conversation {
  resize(size: Size): Promise<void>;
}

/** Starts a program at a terminal of a size. @see https://man7.org/linux/man-pages/man1/script.1.html */
export async function openTerminal(argv: readonly string[], { rows, columns }: Size): Promise<Terminal> {
  const command = argv.map((word) => `'${word.replaceAll("'", "'\\''")}'`).join(" ");
  const child = start([
    "script",
    "--quiet",
    "--return",
    "--flush",
    "--command",
    `echo terminal $(tty); stty rows ${rows} cols ${columns}; exec ${command}`,
    "/dev/null",
  ]);
  const conversation = converse(child);
  await conversation.says(/^terminal \S+\r?\n/);
  const device = /^terminal (\S+)/.exec(conversation.stdout())?.[1] ?? "";
  return {
    ...conversation,
    resize: async (size) =>
      void (await must(["stty", "-F", device, "rows", String(size.rows), "cols", String(size.columns)])),
  };
}
