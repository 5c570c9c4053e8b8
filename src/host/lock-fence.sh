# shellcheck shell=sh disable=SC2154
# Several processes may be told to serve this machine one after the other, each with a later epoch than the one before. This lets only the
# latest do so. The caller sets $fence (a directory), $object (what is served), $epoch (this process's), $lock (the file that descriptor 8 has
# locked), $compares (yes if the shell can compare files) and $timeout (seconds without a heartbeat after which the locks are released). It
# needs the functions of serving-process.sh.

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

# Ends this process if the locked file was removed: another process can lock the file that takes its place.
# shellcheck disable=SC3013
end_if_replaced() { [ "$compares" != yes ] || [ "$lock" -ef /proc/$$/fd/8 ] || exit 92; }

is_running() { look_up "$1" && [ "$started" = "$2" ]; }

# Ends an SSH connection, and the commands that were started over it. $1 is the process that serves it, $2 when it was started.
end_connection() {
  # sshd starts each command in a process group of its own.
  groups=$(cat /proc/[0-9]*/stat 2>/dev/null | sed -n "s/^\([0-9]*\) (.*) [A-Za-z] $1 .*/-\1/p")
  kill "$1" 2>/dev/null
  # shellcheck disable=SC2086
  [ -z "$groups" ] || kill -s KILL -- $groups 2>/dev/null
  for _ in 1 2; do
    is_running "$1" "$2" || return 0
    sleep 1
  done
  kill -s KILL "$1" 2>/dev/null
}

# Ends the SSH connections over which the machine was served before: what is still on its way there, or in a command's input, has no effect
# any more. Those of this process, $own, go on.
end_former_connections() {
  newline='
'
  read -r boot </proc/sys/kernel/random/boot_id
  cat "$fence"/connection* 2>/dev/null | {
    while IFS=' ' read -r former since during; do
      case $former in '' | *[!0-9]*) continue ;; esac
      [ "$during" = "$boot" ] || continue
      is_running "$former" "$since" || continue
      case "$newline$own$newline" in
        *"$newline$former $since $during$newline"*) ;;
        *) end_connection "$former" "$since" & ;;
      esac
    done
    wait
  }
}

# Records this process's epoch, and its connections: the one that this command runs over, and those in $connections. Ends all earlier ones.
# To be called once the locks are held.
take() {
  end_if_superseded
  record_epoch token
  rm -f "$fence/claim"
  own=$(serving_process; echo "$connections")
  end_former_connections
  echo "$own" >"$fence/connection.new" && mv -f "$fence/connection.new" "$fence/connection.$epoch"
  for file in "$fence"/connection*; do
    [ "$file" = "$fence/connection.$epoch" ] || rm -f "$file"
  done
}

# Records a further connection, $server, of the process that holds the locks, before it is used. Ends this process if the locks were taken
# in a later epoch: whoever took them records that first, and then looks for connections.
add_connection() {
  {
    while IFS=' ' read -r former since during; do
      ! is_running "$former" "$since" || echo "$former $since $during"
    done <"$fence/connection.$epoch"
    echo "$server"
  } >"$fence/further.$epoch" && mv -f "$fence/further.$epoch" "$fence/connection.$epoch"
  end_if_superseded
}

# Echoes heartbeats for as long as they arrive and nobody claims the machine. Every few seconds, looks for a claim, and whether the locked
# file is still in its place.
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
    end_if_replaced
  done
  exit
}
