import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type { Pod } from "../../src/objects.ts";
import type { Cluster } from "./cluster.ts";
import { condition, type Pods } from "./pods.ts";

const bin = "/usr/lib/postgresql/15/bin";
const socket = ["-h", "/tmp", "-U", "postgres"];
/** Half a new database is none: it gets its name when it is whole. */
const script = `
if ! [ -d /data/base ]; then rm -rf /data/new; ${bin}/initdb -D /data/new -A trust -U postgres --no-locale -E UTF8; mv /data/new /data/base; fi
# The group of a volume may write to it, which the database does not allow.
chmod 700 /data/base
exec ${bin}/postgres -D /data/base -c listen_addresses= -c unix_socket_directories=/tmp -c jit=off -c shared_buffers=16MB`;

/** A database that rows are committed to, one after another, whether it can be reached or not. */
export interface Database {
  /** The database's pod as it is now. */
  pod(): Promise<Pod>;
  /** Its next pod, or this one again, once it is ready. */
  ready(notUid?: string): Promise<Pod>;
  /** Waits until it answers a client again. */
  reachable(): Promise<void>;
  /** Waits for further rows, and checks that every row that was ever committed is there as it was written. */
  check(): Promise<void>;
  /** Ends the writing. */
  stop(): Promise<void>;
}

/** Starts PostgreSQL as a StatefulSet, with its data on a claim of a class. */
export async function startDatabase(
  cluster: Cluster,
  pods: Pods,
  { name, storageClass }: { readonly name: string; readonly storageClass: string },
): Promise<Database> {
  await cluster.apply([statefulSet(name, storageClass)]);
  const pod = `${name}-0`;
  const query = (sql: string) =>
    cluster.kubectl(["exec", pod, "--", `${bin}/psql`, ...socket, "-qAtc", sql], { timeoutMs: 10_000 });
  const answer = async (sql: string): Promise<string> => {
    const { code, stdout, stderr } = await query(sql);
    assert.equal(code, 0, stderr);
    return stdout.trim();
  };
  const ready = (notUid = "") =>
    pods.until(
      pod,
      "to be ready",
      (now) => now.metadata.uid !== notUid && condition(now, "Ready")?.status === "True",
      90_000,
    );
  await ready();
  await answer("create table rows (n int primary key, word text not null)");
  const committed: number[] = [];
  const writing = new AbortController();
  const written = (async () => {
    for (let n = 0; !writing.signal.aborted; n += 1) {
      const { code } = await query(`insert into rows values (${n}, '${wordOf(n)}')`).catch(() => ({ code: 1 }));
      if (code === 0) committed.push(n);
      else await sleep(200);
    }
  })();
  return {
    pod: () => pods.until(pod, "to be there", () => true),
    ready,
    async reachable() {
      const answers = async () => (await query("select 1").catch(() => undefined))?.code === 0;
      await cluster.waitFor("the database to answer", answers, { timeoutMs: 60_000 });
    },
    async check() {
      const wanted = committed.length + 3;
      await cluster.waitFor("further rows", () => committed.length >= wanted);
      const all = committed.toSorted((one, other) => one - other);
      const found = await answer(
        `select count(*) || ' ' || md5(string_agg(n || ':' || word, ',' order by n)) from rows where n in (${all.join()})`,
      );
      assert.equal(found, `${all.length} ${md5(all.map((n) => `${n}:${wordOf(n)}`).join())}`);
    },
    async stop() {
      writing.abort();
      await written;
    },
  };
}

function wordOf(n: number): string {
  return md5(`row ${n}`);
}

function md5(text: string): string {
  return createHash("md5").update(text).digest("hex");
}

function statefulSet(name: string, storageClassName: string): object {
  const labels = { database: name };
  const container = {
    name: "main",
    image: "postgres:15",
    command: ["sh", "-ec", script],
    readinessProbe: { exec: { command: [`${bin}/pg_isready`, ...socket] }, periodSeconds: 1 },
    volumeMounts: [{ name: "data", mountPath: "/data" }],
  };
  const claim = { accessModes: ["ReadWriteOnce"], storageClassName, resources: { requests: { storage: "200Mi" } } };
  return {
    apiVersion: "apps/v1",
    kind: "StatefulSet",
    metadata: { name, namespace: "default" },
    spec: {
      serviceName: name,
      selector: { matchLabels: labels },
      template: {
        metadata: { labels },
        spec: {
          terminationGracePeriodSeconds: 10,
          securityContext: { runAsUser: 70, runAsGroup: 70, fsGroup: 70 },
          containers: [container],
        },
      },
      volumeClaimTemplates: [{ metadata: { name: "data" }, spec: claim }],
    },
  };
}
