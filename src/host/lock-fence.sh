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

# Records this process's epoch, once the locks are held.
take() {
  end_if_superseded
  record_epoch token
  rm -f "$fence/claim"
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
