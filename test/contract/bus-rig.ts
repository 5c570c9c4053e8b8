import { spawn } from "node:child_process";
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Message, messageType } from "dbus-native";
import type { Host } from "../../src/seams/host.ts";
import { type Answer, type Service, connectService } from "../harness/bus-service.ts";
import { start } from "../harness/processes.ts";
import { waitFor } from "../harness/wait.ts";

/** A dbus-daemon with Debian's policy for the system bus, which lets every user send signals. */
export interface SystemBusRig extends AsyncDisposable {
  /** A target whose system bus this is. */
  readonly host: Pick<Host, "dial" | "spawn" | "run">;
  /** A service of root's under a well-known name. */
  own(name: string, answer: (call: Message) => Answer): Promise<BusService>;
  /** Runs a program of the user nobody's, which has a `connection` of dbus-native and ends by itself. Beside it and the services, the bus
   *  has the connections of unique names `others`. */
  asNobody(script: string): Promise<void>;
}

export interface BusService {
  signal(message: Pick<Message, "path" | "interface" | "member" | "signature" | "body" | "destination">): void;
  /** Gives the name up, and stays connected. */
  release(): Promise<void>;
}

const root = join(import.meta.dirname, "..", "..");

/** What systemd's packages let root and others do. */
const policyOf = (name: string) => `
<policy user="root"><allow own="${name}"/></policy>
<policy context="default"><allow send_destination="${name}"/></policy>`;

/** Starts the daemon. Needs root and Debian's dbus-daemon. */
export async function systemBusRig(...names: readonly string[]): Promise<SystemBusRig> {
  const dir = mkdtempSync(join(tmpdir(), "system-bus-"));
  chmodSync(dir, 0o755);
  const [socket, configuration] = [join(dir, "socket"), join(dir, "system.conf")];
  const policy = readFileSync("/usr/share/dbus-1/system.conf", "utf8")
    .replace(/<listen>.*<\/listen>/, `<listen>unix:path=${socket}</listen>`)
    .replace(/<(user|fork|pidfile|servicehelper|standard_system_servicedirs)\b[^\n]*/g, "")
    .replace(/<include[^\n]*/g, "")
    .replace("</busconfig>", `${names.map(policyOf).join("")}</busconfig>`);
  writeFileSync(configuration, policy);
  const daemon = start(["dbus-daemon", `--config-file=${configuration}`, "--nofork", "--nopidfile"], {
    stdio: "ignore",
  });
  const services: Service[] = [];
  await waitFor("the bus", () => existsSync(socket));
  return {
    host: {
      dial: async () => connect(socket),
      spawn: () => Promise.reject(new Error("no programs here")),
      run: () => Promise.reject(new Error("no programs here")),
    },
    async own(name, answer) {
      const service = await connectService(socket, answer);
      services.push(service);
      await service.ask("RequestName", "su", name, 0);
      return {
        signal: (message) => service.send({ type: messageType.signal, ...message }),
        release: async () => void (await service.ask("ReleaseName", "s", name)),
      };
    },
    asNobody(script) {
      const own = services.map(({ uniqueName }) => uniqueName);
      const code = `
        const bus = require("dbus-native").createClient({ socket: ${JSON.stringify(socket)} });
        const ask = { destination: "org.freedesktop.DBus", path: "/org/freedesktop/DBus", interface: "org.freedesktop.DBus" };
        bus.invoke({ ...ask, member: "ListNames" }).then((names) => {
          const notOthers = [bus.name, ...${JSON.stringify(own)}];
          const others = names.filter((name) => name.startsWith(":") && !notOthers.includes(name));
          const { connection } = bus;
          ${script}
        });`;
      const child = spawn(process.execPath, ["-e", code], { cwd: root, uid: 65534, gid: 65534, stdio: "inherit" });
      return new Promise((resolve, reject) => {
        child.once("error", reject);
        child.once("close", (status) => (status === 0 ? resolve() : reject(new Error(`it ended with ${status}`))));
      });
    },
    async [Symbol.asyncDispose]() {
      for (const { end } of services) end();
      daemon.kill();
      rmSync(dir, { recursive: true, force: true });
    },
  };
}
