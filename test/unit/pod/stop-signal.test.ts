import assert from "node:assert/strict";
import { test } from "node:test";
import { Signal } from "../../../src/gen/cri.ts";
import { signalName, signalNamed, stopSignalOf } from "../../../src/pod/stop-signal.ts";

test("each CRI signal has a name that maps back to it", () => {
  for (const signal of Object.values(Signal)) {
    const name = signalName(signal);
    const isDefault = signal === Signal.RUNTIME_DEFAULT || signal === Signal.UNRECOGNIZED;
    assert.equal(name === undefined, isDefault);
    if (name !== undefined) assert.equal(signalNamed(name), signal);
  }
  assert.equal(signalName(Signal.SIGRTMAXMINUS14), "SIGRTMAX-14");
});

test("a container without a stop signal, or with an unknown one, gets the runtime's default", () => {
  assert.equal(stopSignalOf({ lifecycle: { stopSignal: "SIGRTMIN+15" } }), Signal.SIGRTMINPLUS15);
  for (const stopSignal of ["RUNTIME_DEFAULT", "SIGRTMINPLUS1", "SIGNONE"])
    assert.equal(stopSignalOf({ lifecycle: { stopSignal } }), Signal.RUNTIME_DEFAULT, stopSignal);
  assert.equal(stopSignalOf({}), Signal.RUNTIME_DEFAULT);
});
