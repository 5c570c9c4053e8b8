import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { insideArgv } from "../harness/namespaces.ts";
import { must, type ProcessId, run } from "../harness/processes.ts";
import type { RuntimeRig } from "../harness/runtime-rig.ts";

/** A message bus for one machine: upstream's tests announce a shutdown in logind's name. */
const busConfiguration = `<busconfig>
  <type>system</type>
  <listen>unix:path=/run/dbus/system_bus_socket</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/>
    <allow own="*"/>
    <allow send_destination="*"/>
    <allow send_type="signal"/>
    <allow receive_sender="*"/>
  </policy>
</busconfig>
`;

/** Delays that are long enough for the tests: without systemd nobody could make logind read a longer one. It is to heed no key. */
const logindConfiguration = `[Login]
InhibitDelayMaxSec=120
HandlePowerKey=ignore
HandleSuspendKey=ignore
HandleHibernateKey=ignore
HandleRebootKey=ignore
HandleLidSwitch=ignore
`;

/** Runs D-Bus and systemd-logind in a rig, without systemd. They end with it. */
export async function startLogind({ layout, daemons }: RuntimeRig, holder: ProcessId): Promise<void> {
  const bus = join(layout.dir, "bus.conf");
  const logind = join(layout.dir, "logind.conf");
  writeFileSync(bus, busConfiguration);
  writeFileSync(logind, logindConfiguration);
  const inside = (script: string) => insideArgv(layout, holder, ["sh", "-ec", script]);
  const holds = async (script: string) => (await run(inside(script))).code === 0;
  await must(
    inside(`mkdir -p /run/dbus /run/systemd/logind.conf.d
rm -f /run/dbus/system_bus_socket
cp ${logind} /run/systemd/logind.conf.d/rig.conf`),
  );
  await daemons.start("dbus-daemon", ["dbus-daemon", `--config-file=${bus}`, "--nofork", "--nopidfile"]);
  await daemons.ready("dbus-daemon", () => holds("test -S /run/dbus/system_bus_socket"));
  await daemons.start("systemd-logind", ["/lib/systemd/systemd-logind"]);
  await daemons.ready("systemd-logind", () => holds("busctl status org.freedesktop.login1"));
  await daemons.start("shutdown-announcer", [process.execPath, join(import.meta.dirname, "shutdown-announcer.ts")]);
  await daemons.ready("shutdown-announcer", () => holds("busctl status org.freedesktop.systemd1"));
}
