// Preloaded into an agent: what it does after one pause, it does after another. GRAFTLET_TEST_PAUSES is `FROM TO`, milliseconds.

const [from, to] = (process.env.GRAFTLET_TEST_PAUSES ?? "").split(" ").map(Number);

globalThis.setTimeout = new Proxy(globalThis.setTimeout, {
  apply(target, self, [call, ms, ...more]: [() => void, number | undefined, ...unknown[]]): unknown {
    return Reflect.apply(target, self, [call, ms === from ? to : ms, ...more]);
  },
});
