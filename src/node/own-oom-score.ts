import { readFile, writeFile } from "node:fs/promises";
import { messageOf } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";

/** Sets this process's OOM score adjustment. If that is not permitted, it logs the kubelet's message and continues. Child processes inherit
 *  the score.
 *  @param score from −1000 (never killed) to 1000; lowering it requires CAP_SYS_RESOURCE.
 *  @see https://man7.org/linux/man-pages/man5/proc_pid_oom_score_adj.5.html */
export async function setOwnOomScore(score: number, log: Logger, path = "/proc/self/oom_score_adj"): Promise<void> {
  try {
    if (Number(await readFile(path, "utf8")) !== score) await writeFile(path, String(score));
  } catch (error) {
    log.info({ why: messageOf(error), oomScoreAdj: score }, "Failed to ApplyOOMScoreAdj");
  }
}
