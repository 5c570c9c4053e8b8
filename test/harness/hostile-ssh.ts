import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fingerprintOf } from "../../providers/ssh/connection/fingerprint.ts";
import { start } from "./processes.ts";
import { sshKey } from "./ssh-keys.ts";

/** A hostile target in a process of its own: this machine, by an SSH server that lies. */
export interface HostileSsh extends AsyncDisposable {
  /** Fields of the ssh provider that lead there. */
  readonly fields: Readonly<Record<string, unknown>>;
  /** Begins the attack on the newest connection. */
  begin(): Promise<void>;
  /** Begins an attack by its name, on the newest connection and on later ones. */
  attack(name: string): Promise<void>;
  /** Ends the attack: cuts the connections, and serves new ones honestly. */
  rest(): Promise<void>;
}

type Start = (argv: readonly string[]) => ChildProcess;

/** @param attack its name in hostile-ssh-attacks.ts. @param run starts it elsewhere than on this machine's own network. */
export async function startHostileSsh(attack: string, run: Start = start): Promise<HostileSsh> {
  const dir = mkdtempSync(join(tmpdir(), "graftlet-hostile-"));
  // ssh2 makes keys of type ed25519 that it cannot read now and then.
  const key = sshKey("rsa");
  const at = (name: string, content: string) => {
    writeFileSync(join(dir, name), content, { mode: 0o600 });
    return join(dir, name);
  };
  const entry = join(import.meta.dirname, "hostile-ssh-entry.ts");
  const child = run([
    process.execPath,
    entry,
    attack,
    at("host-key", key.privateKey.export({ type: "pkcs1", format: "pem" })),
  ]);
  child.stderr?.pipe(process.stderr);
  if (!child.stdout) throw new Error("the hostile target cannot say its port");
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const port = Number((await lines.next()).value);
  const tell = async (line: string): Promise<void> => {
    child.stdin?.write(`${line}\n`);
    if ((await lines.next()).done) throw new Error(`the hostile target ended when it was told "${line}"`);
  };
  return {
    fields: {
      host: "127.0.0.1",
      port,
      user: "root",
      passwordFile: at("password", "any"),
      hostKeyFingerprints: [fingerprintOf(key.wire)],
    },
    begin: () => tell("begin"),
    attack: (name) => tell(`attack ${name}`),
    rest: () => tell("rest"),
    async [Symbol.asyncDispose]() {
      const over = once(child, "exit");
      child.stdin?.end();
      await over;
      rmSync(dir, { recursive: true });
    },
  };
}
