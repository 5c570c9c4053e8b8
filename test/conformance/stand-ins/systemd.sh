#!/bin/sh
# Stands in for systemd where e2e_node runs and no systemd does: starts, ends and restarts the agent as a unit, under the names of
# systemd-run, systemctl, sudo and journalctl. Units are folders below $STAND_IN_UNITS: `command` (a script), `log`, `pid`.
# It serves what e2e_node asks for, and refuses the rest.
set -eu

units=$STAND_IN_UNITS
mkdir -p "$units"

unit() { echo "$units/${1%.service}"; }

# A process is that of the unit while its start time, the 22nd field of its stat, is the same; a dead one that nobody has waited for is none.
born() { sed 's/.*) //; /^Z/d' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }

running() { [ -s "$1/pid" ] && read -r pid time <"$1/pid" && [ -n "$time" ] && [ "$(born "$pid")" = "$time" ]; }

launch() {
  log=$(cat "$1/log")
  setsid sh "$1/command" >>"$log" 2>&1 </dev/null &
  echo "$! $(born $!)" >"$1/pid"
}

# SIGTERM, and after ten seconds SIGKILL.
end() {
  running "$1" || return 0
  kill "$pid"
  for _ in $(seq 100); do
    running "$1" || return 0
    sleep 0.1
  done
  kill -KILL "$pid"
}

# systemd-run [OPTION…] COMMAND…
run_unit() {
  name= log=/dev/null
  while [ $# -gt 0 ]; do
    case $1 in
      --version) echo "systemd 252 (stand-in)"; return ;;
      --unit=*) name=${1#*=} ;;
      -p) shift; case $1 in StandardError=*) log=${1#*:} ;; esac ;;
      --*) ;;
      *) break ;;
    esac
    shift
  done
  folder=$(unit "$name")
  mkdir -p "$folder"
  echo "$log" >"$folder/log"
  # Arguments are escaped for systemd: a doubled sign is a single one.
  for word in "$@"; do
    printf "'%s' " "$(printf %s "$word" | sed "s/%%/%/g; s/[$][$]/$/g; s/'/'\\\\''/g")"
  done >"$folder/words"
  echo "cd / && exec $(cat "$folder/words")" >"$folder/command"
  launch "$folder"
}

control() {
  verb=$1
  shift
  case $verb in
    list-units)
      for folder in "$units"/*/; do
        folder=${folder%/}
        if running "$folder"; then state="active running"; else state="failed failed"; fi
        case "$* $state" in *--state=running*failed*) continue ;; esac
        echo "  $(basename "$folder").service loaded $state"
      done
      ;;
    reset-failed | mask) ;;
    kill) if running "$(unit "$1")"; then kill "$pid"; fi ;;
    stop) end "$(unit "$1")" ;;
    restart) end "$(unit "$1")"; launch "$(unit "$1")" ;;
    *) echo "systemctl $verb is not served here" >&2; exit 1 ;;
  esac
}

case $(basename "$0") in
  systemd-run) run_unit "$@" ;;
  systemctl) control "$@" ;;
  sudo) exec "$@" ;;
  journalctl) ;;
esac
