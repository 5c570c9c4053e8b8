import { type ChildProcess } from "node:child_process";
import { mkdtempDisposable } from "node:fs/promises";
import { closeSync, openSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { BinaryReader, BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { Client, credentials, type ServiceError } from "@grpc/grpc-js";
import { type Finished, firstLine, run, start } from "../harness/processes.ts";
import { buildProgram } from "../harness/tools.ts";
import { waitFor } from "../harness/wait.ts";

type Program = "hostpathplugin" | "csi-node-driver-registrar" | "csi-sanity";

/** What their logs say once they listen. */
const listening = {
  hostpathplugin: /Listening for connections|Joining connections/,
  "csi-node-driver-registrar": /Registration Server started/,
};

/** Programs of test/cluster/tools/csi, in a mount namespace that ends with them, and a folder for what they leave. */
export interface CsiRig extends AsyncDisposable {
  readonly folder: string;
  /** Runs one to its end. */
  run(program: Program, args: readonly string[]): Promise<Finished>;
  /** Starts one, and waits until it listens. Disposing it kills it. */
  start(program: Exclude<Program, "csi-sanity">, args: readonly string[]): Promise<Running>;
}

/** A program that runs. */
export interface Running extends AsyncDisposable {
  log(): string;
  /** Sends a signal. @returns its exit code, null where it had none. */
  end(signal: NodeJS.Signals): Promise<number | null>;
  readonly ended: Promise<number | null>;
}

export async function startCsiRig(): Promise<CsiRig> {
  await using stack = new AsyncDisposableStack();
  const { path: folder } = stack.use(await mkdtempDisposable(join(tmpdir(), "graftlet-csi-")));
  const holder = start(["unshare", "--mount", "sh", "-c", "echo held; exec sleep infinity"]);
  const gone = new Promise((resolve) => holder.once("exit", resolve));
  stack.defer(async () => {
    holder.kill("SIGKILL");
    await gone;
  });
  await firstLine(holder);
  const argv = async (name: Program, args: readonly string[]): Promise<string[]> => [
    "nsenter",
    `--mount=/proc/${holder.pid}/ns/mnt`,
    await buildProgram({ name, module: "csi" }, console.error),
    ...args,
  ];
  let started = 0;
  const whole = stack.move();
  return {
    folder,
    run: async (program, args) => run(await argv(program, args), { timeoutMs: 120_000 }),
    async start(program, args) {
      started += 1;
      const logFile = join(folder, `${program}-${started}.log`);
      const log = openSync(logFile, "a");
      const child = start(await argv(program, args), { stdio: ["ignore", log, log] });
      closeSync(log);
      const running = runningOf(child, logFile);
      await waitFor(`${program} to listen`, () => listening[program].test(running.log()), {
        timeoutMs: 10_000,
        everyMs: 20,
        explain: running.log,
      });
      return running;
    },
    [Symbol.asyncDispose]: () => whole.disposeAsync(),
  };
}

function runningOf(child: ChildProcess, logFile: string): Running {
  const ended = new Promise<number | null>((resolve) => child.once("exit", (code) => resolve(code)));
  const end: Running["end"] = (signal) => {
    child.kill(signal);
    return ended;
  };
  return {
    log: () => readFileSync(logFile, "utf8"),
    end,
    ended,
    async [Symbol.asyncDispose]() {
      await end("SIGKILL");
    },
  };
}

/** A field of a message to be written: a number for a varint. */
type Field = readonly [number: number, value: string | number | readonly Field[]];

/** A message of these fields, as protocol buffers write it. */
function encode(fields: readonly Field[]): Uint8Array {
  const writer = new BinaryWriter();
  for (const [number, value] of fields) {
    if (typeof value === "number") writer.tag(number, WireType.Varint).int64(value);
    else
      writer
        .tag(number, WireType.LengthDelimited)
        .bytes(typeof value === "string" ? Buffer.from(value) : encode(value));
  }
  return writer.finish();
}

/** Fields that have a length: texts and messages, by their number; of several the last. */
export function decode(message: Uint8Array): ReadonlyMap<number, Buffer> {
  const reader = new BinaryReader(message);
  const fields = new Map<number, Buffer>();
  while (reader.pos < reader.len) {
    const [number, wire] = reader.tag();
    if (wire === WireType.LengthDelimited) fields.set(number, Buffer.from(reader.bytes()));
    else reader.skip(wire, number);
  }
  return fields;
}

/** Calls a method of a gRPC server at a socket. @param path such as `/csi.v1.Identity/Probe`. */
export async function callAt(socket: string, path: string, fields: readonly Field[] = []): Promise<Buffer> {
  const client = new Client(`unix:${socket}`, credentials.createInsecure(), { "grpc.default_authority": "localhost" });
  try {
    return await new Promise((resolve, reject) => {
      const done = (error: ServiceError | null, answer?: Buffer) =>
        error ? reject(error) : resolve(answer ?? Buffer.of());
      client.makeUnaryRequest(
        path,
        (request: Uint8Array) => Buffer.from(request),
        (answer: Buffer) => answer,
        encode(fields),
        { deadline: Date.now() + 20_000 },
        done,
      );
    });
  } finally {
    client.close();
  }
}
