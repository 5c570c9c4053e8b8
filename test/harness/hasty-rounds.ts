// Preloaded into an agent: what it does every five minutes, it does every three seconds.

const fiveMinutesMs = 300_000;
const threeSecondsMs = 3_000;

const inTime = globalThis.setTimeout;

globalThis.setTimeout = new Proxy(inTime, {
  apply(target, self, [call, ms, ...more]: [() => void, number | undefined, ...unknown[]]): unknown {
    return Reflect.apply(target, self, [call, ms === fiveMinutesMs ? threeSecondsMs : ms, ...more]);
  },
});
