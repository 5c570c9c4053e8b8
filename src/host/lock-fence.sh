# shellcheck shell=sh disable=SC2154
# Several processes may be told to serve this machine one after the other, each with a later epoch than the one before. This lets only the
# latest do so. The caller sets $fence (a directory), $object (what is served), $epoch (this process's) and $timeout (seconds without a
# heartbeat after which the locks are released).

# Prints the epoch that a file records for the object; 0 if it records none.
recorded_epoch() {
  of='' recorded=''
  [ ! -f "$fence/$1" ] || IFS=' ' read -r of recorded <"$fence/$1"
  case $recorded in '' | *[!0-9]*) recorded=0 ;; esac
  [ "$of" = "$object" ] || recorded=0
  echo "$recorded"
}

record_epoch() {
  printf '%s %s\n' "$object" "$epoch" >"$fence/$1.new" && mv -f "$fence/$1.new" "$fence/$1"
}

# Asks the process that holds the locks to release them, if it serves the object in an earlier epoch.
claim() {
  held=$(recorded_epoch token)
  [ "$held" -eq 0 ] || [ "$held" -ge "$epoch" ] || record_epoch claim
}

# Ends this process if another one has served the object in a later epoch, or has claimed it.
end_if_superseded() {
  for file in token claim; do
    [ "$(recorded_epoch $file)" -le "$epoch" ] || exit 91
  done
}

# Sets $parent and $started, the parent of a process and when it was started; fails if there is no such process.
look_up() {
  read -r stat 2>/dev/null <"/proc/$1/stat" || return
  # shellcheck disable=SC2086
  set -- ${stat##*) }
  parent=$2
  shift 19
  started=$1
}

# Prints the addresses of the SSH connection that a process was started over, if any.
connection_of() { { tr '\0' '\n' <"/proc/$1/environ" | sed -n 's/^SSH_CONNECTION=//p'; } 2>/dev/null; }

# Prints which process serves this SSH connection, when it was started, and the boot: the parent of the first one that was started over the
# connection. Prints nothing if there is no SSH connection.
serving_process() {
  at=$$ connection=$(connection_of $$)
  while look_up "$at" && [ "$parent" -gt 1 ]; do
    at=$parent
    above=$(connection_of "$at")
    if [ -n "$connection" ] && [ "$above" != "$connection" ]; then
      read -r boot </proc/sys/kernel/random/boot_id
      look_up "$at" && echo "$at $started $boot"
      return
    fi
    connection=$above
  done
}

is_running() { look_up "$1" && [ "$started" = "$2" ]; }

# Ends the SSH connection over which the machine was served before, and the commands that were started over it: what is still on its way
# there, or in a command's input, has no effect any more.
end_former_connection() {
  [ -f "$fence/connection" ] || return 0
  IFS=' ' read -r former since during <"$fence/connection"
  case $former in '' | *[!0-9]*) return 0 ;; esac
  read -r boot </proc/sys/kernel/random/boot_id
  [ "$during" = "$boot" ] && [ "$former $since $during" != "$serving" ] && is_running "$former" "$since" || return 0
  # sshd starts each command in a process group of its own.
  groups=$(cat /proc/[0-9]*/stat 2>/dev/null | sed -n "s/^\([0-9]*\) (.*) [A-Za-z] $former .*/-\1/p")
  kill "$former" 2>/dev/null
  # shellcheck disable=SC2086
  [ -z "$groups" ] || kill -s KILL -- $groups 2>/dev/null
  for _ in 1 2; do
    is_running "$former" "$since" || return 0
    sleep 1
  done
  kill -s KILL "$former" 2>/dev/null
}

# Records this process's epoch and connection, once the locks are held.
take() {
  end_if_superseded
  record_epoch token
  rm -f "$fence/claim"
  serving=$(serving_process)
  end_former_connection
  echo "$serving" >"$fence/connection.new" && mv -f "$fence/connection.new" "$fence/connection"
}

# Echoes heartbeats for as long as they arrive and nobody claims the machine. Looks for a claim every few seconds.
serve() {
  step=5 silent=0
  [ "$timeout" -ge "$step" ] || step=$timeout
  while [ "$silent" -lt "$timeout" ]; do
    beat=$(timeout "$step" dd bs=1 count=1 2>/dev/null 3>&- 4>&- 5>&- 6>&- 7>&- 8>&-)
    code=$?
    if [ "$beat" = . ]; then
      silent=0
      printf .
    elif [ "$code" -eq 0 ]; then
      exit
    else
      silent=$((silent + step))
    fi
    end_if_superseded
  done
  exit
}
