import { flagsOf } from "./arguments.ts";
import { kubeletFields } from "./kubelet-fields.ts";
import { doctorFields, enrolFields, leaveFields, optionFields, removeFields, statusFields } from "./option-fields.ts";
import type { Shape } from "./schema.ts";

/** Shells with completion. */
export const shells = ["bash", "zsh", "fish"] as const;
/** The commands, with a description and the flags that they have in addition to a node's. */
const commands: Readonly<Record<string, { readonly does: string; readonly own: Shape }>> = {
  leave: { does: "drains and deletes nodes, and cleans their machines", own: leaveFields },
  enrol: { does: "prints the script by which a machine behind NAT joins", own: enrolFields },
  remove: { does: "cleans a node's machine", own: removeFields },
  doctor: { does: "checks a node's machine and cluster", own: doctorFields },
  status: { does: "shows the nodes of a running graftlet", own: statusFields },
  completion: { does: "prints a shell's completion", own: {} },
  help: { does: "explains a command", own: {} },
};

interface Flag {
  readonly name: string;
  /** A switch, which needs no value. */
  readonly bare: boolean;
}

/** The script for completing graftlet's commands and flags; values complete to file names. Pure. */
export function completionScript(shell: (typeof shells)[number]): string {
  return shell === "fish"
    ? fish()
    : shell === "zsh"
      ? `#compdef graftlet\nautoload -U +X bashcompinit && bashcompinit\n${bash()}`
      : bash();
}

function flagsIn(...shapes: readonly Shape[]): readonly Flag[] {
  return [...flagsOf(...shapes)]
    .map(([name, { type }]) => ({ name, bare: type.bare === true }))
    .concat({ name: "help", bare: true })
    .toSorted((one, other) => (one.name < other.name ? -1 : 1));
}

const ofNode = () => [...flagsIn(optionFields, kubeletFields), { name: "version", bare: true }];

function words(flags: readonly Flag[]): string {
  return flags.map(({ name }) => (name.length === 1 ? `-${name}` : `--${name}`)).join(" ");
}

function bash(): string {
  const cases = Object.entries(commands)
    .filter(([, { own }]) => Object.keys(own).length > 0)
    .map(([name, { own }]) => `    ${name}) flags="$flags ${words(flagsIn(own))}" ;;`);
  return `_graftlet() {
  local current="\${COMP_WORDS[COMP_CWORD]}" command="\${COMP_WORDS[1]}"
  local flags="${words(ofNode())}"
  case "$command" in
${cases.join("\n")}
    completion) COMPREPLY=($(compgen -W "${shells.join(" ")}" -- "$current")); return ;;
    help) COMPREPLY=($(compgen -W "${Object.keys(commands).join(" ")}" -- "$current")); return ;;
  esac
  if [[ $COMP_CWORD -eq 1 && $current != -* ]]; then
    COMPREPLY=($(compgen -W "${Object.keys(commands).join(" ")}" -- "$current"))
  elif [[ $current == -* ]]; then
    COMPREPLY=($(compgen -W "$flags" -- "$current"))
  else
    COMPREPLY=($(compgen -f -- "$current"))
  fi
}
complete -o filenames -F _graftlet graftlet
`;
}

function fish(): string {
  const line = (flag: Flag, when = "") => {
    const name = flag.name.length === 1 ? `-s ${flag.name}` : `-l ${flag.name}`;
    return `complete -c graftlet ${when}${name}${flag.bare ? "" : " -r"}`;
  };
  const names = Object.keys(commands).join(" ");
  const lines = [
    ...Object.entries(commands).map(
      ([name, { does }]) => `complete -c graftlet -n __fish_use_subcommand -f -a ${name} -d ${JSON.stringify(does)}`,
    ),
    `complete -c graftlet -n "__fish_seen_subcommand_from completion" -f -a "${shells.join(" ")}"`,
    `complete -c graftlet -n "__fish_seen_subcommand_from help" -f -a "${names}"`,
    ...ofNode().map((flag) => line(flag)),
    ...Object.entries(commands).flatMap(([name, { own }]) =>
      [...flagsOf(own)].map(([flag, { type }]) =>
        line({ name: flag, bare: type.bare === true }, `-n "__fish_seen_subcommand_from ${name}" `),
      ),
    ),
  ];
  return `${lines.join("\n")}\n`;
}
