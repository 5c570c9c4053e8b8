// Kubernetes' own tests announce a shutdown on the bus by themselves, as no user of a machine may for graftlet: it asks logind. This program
// has logind announce what they do. It stands in for systemd, which there is not, and holds the machine up until the tests call the shutdown
// off: then its job has ended, and logind says so.
import { Variant, messageType } from "dbus-native";
import { connectService } from "../harness/bus-service.ts";

const systemd = { path: "/org/freedesktop/systemd1", interface: "org.freedesktop.systemd1.Manager" };
const logind = {
  destination: "org.freedesktop.login1",
  path: "/org/freedesktop/login1",
  interface: "org.freedesktop.login1.Manager",
};

let jobs = 0;
let job: string | undefined;
let isWanted = false;

const service = await connectService(
  "/run/dbus/system_bus_socket",
  ({ member, body = [] }) => {
    if (member === "Get") return { signature: "v", body: [new Variant("s", body[1] === "LoadState" ? "loaded" : "")] };
    if (member !== "StartUnit") return {};
    job = `/org/freedesktop/systemd1/job/${++jobs}`;
    if (!isWanted) setImmediate(endJob);
    return { signature: "o", body: [job] };
  },
  ({ member, sender, body = [] }) => {
    if (member !== "PrepareForShutdown" || sender === owner) return;
    isWanted = body[0] === true;
    if (isWanted)
      service.send({ type: messageType.methodCall, ...logind, member: "PowerOff", signature: "b", body: [false] });
    else endJob();
  },
);
const owner = await service.ask("GetNameOwner", "s", logind.destination);
await service.ask("RequestName", "su", "org.freedesktop.systemd1", 0);
await service.ask(
  "AddMatch",
  "s",
  "type='signal',interface='org.freedesktop.login1.Manager',member='PrepareForShutdown'",
);

function endJob(): void {
  if (job === undefined) return;
  const body = [jobs, job, "poweroff.target", "done"];
  job = undefined;
  service.send({ type: messageType.signal, ...systemd, member: "JobRemoved", signature: "uoss", body });
}
