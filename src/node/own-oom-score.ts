import { readFile, writeFile } from "node:fs/promises";
import { messageOf } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";

/** Adjusts how early the kernel ends this process when memory runs out; that it may not is said, in the kubelet's words, and no
 *  failure. The commands that it starts inherit the score.
 *  @param score from −1000 (never) to 1000; below its present one it takes CAP_SYS_RESOURCE.
 *  @see https://man7.org/linux/man-pages/man5/proc_pid_oom_score_adj.5.html */
export async function setOwnOomScore(score: number, log: Logger, path = "/proc/self/oom_score_adj"): Promise<void> {
  try {
    if (Number(await readFile(path, "utf8")) !== score) await writeFile(path, String(score));
  } catch (error) {
    log.info({ why: messageOf(error), oomScoreAdj: score }, "Failed to ApplyOOMScoreAdj");
  }
}
