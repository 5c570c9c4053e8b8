import { programText } from "../../../src/lib/program-text.ts";

/** POSIX sh that sets gl_group to the shell's process group and gl_start to the start time of the group's first process,
 *  in ticks since boot; 0 if /proc does not show it. With sudo that process is sudo. */
export const identifyScript = (): string => programText("providers/ssh/shell/identify.sh");

/** Functions loaded into every shell: prelude.sh, and those of identify.sh and removal.sh. */
export const prelude = (): string =>
  [programText("providers/ssh/shell/prelude.sh"), identifyScript(), programText("providers/ssh/shell/removal.sh")].join(
    "\n",
  );
