import { fork } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import ssh2 from "ssh2";
import { fingerprintOf } from "../../providers/ssh/connection/fingerprint.ts";

/** A hostile target in a process of its own: this machine, by an SSH server that lies. */
export interface HostileSsh extends AsyncDisposable {
  /** Fields of the ssh provider that lead there. */
  readonly fields: Readonly<Record<string, unknown>>;
  /** Begins the attack on the newest connection. */
  begin(): Promise<void>;
}

/** @param attack its name in hostile-ssh-attacks.ts. */
export async function startHostileSsh(attack: string): Promise<HostileSsh> {
  const dir = mkdtempSync(join(tmpdir(), "graftlet-hostile-"));
  const key = ssh2.utils.generateKeyPairSync("ed25519");
  const at = (name: string, content: string) => {
    writeFileSync(join(dir, name), content, { mode: 0o600 });
    return join(dir, name);
  };
  const entry = join(import.meta.dirname, "hostile-ssh-entry.ts");
  const child = fork(entry, [attack, at("host-key", key.private)], { stdio: ["ignore", "inherit", "inherit", "ipc"] });
  const [{ port }] = (await once(child, "message")) as [{ port: number }];
  const parsed = ssh2.utils.parseKey(key.public);
  if (parsed instanceof Error) throw parsed;
  return {
    fields: {
      host: "127.0.0.1",
      port,
      user: "root",
      passwordFile: at("password", "any"),
      hostKeyFingerprints: [fingerprintOf(parsed.getPublicSSH())],
    },
    async begin() {
      const begun = once(child, "message");
      child.send("begin");
      await begun;
    },
    async [Symbol.asyncDispose]() {
      const over = once(child, "exit");
      child.disconnect();
      await over;
      rmSync(dir, { recursive: true });
    },
  };
}
