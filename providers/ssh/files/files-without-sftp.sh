# shellcheck shell=sh disable=SC2094
# What SFTP does for a target that has it. Needs prelude.sh. Text is followed by a line with a dot, so that newlines at its end are kept.
gl_readlink() {
  if [ -L "$1" ]; then readlink -- "$1" && echo .
  else stat -c %F -- "$1" >/dev/null && gl_say "$1" 'Invalid argument'; fi
}
gl_realpath() { stat -L -c %F -- "$1" >/dev/null && readlink -f -- "$1" && echo .; }
gl_is() { [ "$(stat -c %d:%i -- "$1" 2>/dev/null)" = "$2" ]; }
# Sets gl_p to the path of a file that is opened again by its device and inode: logs are renamed while they are read.
gl_find() {
  gl_p=$1
  if gl_is "$gl_p" "$2"; then return; fi
  for gl_p in "${1%/*}"/* "${1%/*}"/.*; do
    if [ -f "$gl_p" ] && gl_is "$gl_p" "$2"; then return; fi
  done
  gl_p=$1
  gl_say "$1" 'No such file or directory'
}
# Runs a command with a regular file open as 8. $1: its path; $2: 1 if no part of the path may be a link; $3: its device and inode, or
# nothing; then the command.
gl_with() {
  gl_p=$1; gl_l=$2; gl_id=$3; shift 3
  if [ -n "$gl_id" ]; then gl_find "$gl_p" "$gl_id" || return
  elif [ ! -f "$gl_p" ]; then stat -L -c %F -- "$gl_p" >/dev/null && gl_say "$gl_p" 'Not a regular file'; return
  fi
  { gl_check && "$@"; } 8<"$gl_p"
}
# What was opened may be another file than the one that was there before.
gl_check() {
  if [ ! -f /proc/self/fd/8 ] || { [ -n "$gl_id" ] && [ "$(stat -L -c %d:%i /proc/self/fd/8)" != "$gl_id" ]; }; then
    gl_say "$gl_p" 'Not a regular file'
  elif [ "$gl_l" = 1 ] && [ "$(readlink /proc/self/fd/8; echo .)" != "$gl_p
." ]; then gl_say "$gl_p" 'Too many levels of symbolic links'
  fi
}
gl_describe() { stat -L -c "%d:%i $1" /proc/self/fd/8 && readlink /proc/self/fd/8 && echo .; }
# $1: position; $2: size of blocks; then the number of the first block, and how many.
gl_blocks() {
  [ "$1" -lt "$(stat -L -c %s /proc/self/fd/8)" ] || return 0
  dd bs="$2" skip="$3" count="$4" <&8 2>/dev/null
}
