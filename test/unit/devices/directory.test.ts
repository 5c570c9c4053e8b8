import assert from "node:assert/strict";
import { test } from "node:test";
import { createPluginDirectory } from "../../../src/devices/directory.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeHost } from "../../fakes/host.ts";

test("accepts only plugin sockets inside the directory, even if the root directory's path is not normalized", () => {
  const { fs } = fakeHost({ clock: fakeClock() });
  for (const root of ["/var/lib/kubelet", "/var/lib/kubelet/", "/var/lib/x/../kubelet"]) {
    const directory = createPluginDirectory(fs, root);
    assert.equal(directory.socket, "/var/lib/kubelet/device-plugins/kubelet.sock");
    assert.equal(directory.pluginSocket("gpu.sock"), "/var/lib/kubelet/device-plugins/gpu.sock");
    assert.equal(directory.pluginSocket("vendor/gpu.sock"), "/var/lib/kubelet/device-plugins/vendor/gpu.sock");
    for (const endpoint of ["", ".", "../gpu.sock", "vendor/../../gpu.sock", "kubelet.sock", "./kubelet.sock"])
      assert.equal(directory.pluginSocket(endpoint), undefined, endpoint);
  }
});
