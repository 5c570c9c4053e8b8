# shellcheck shell=sh disable=SC2034,SC2059,SC2086,SC2094,SC2154
# Functions loaded into every shell, in POSIX sh plus head -c, tail -c, stat -c and readlink, which GNU, busybox and
# toybox support. Arguments are passed quoted, data as a format for printf. The session's standard output and error are also
# open as 5 and 6. A function fails with a non-zero status and the system's message on standard error; commands run in
# the C locale, so that messages are the same everywhere.
unset CDPATH ENV
LC_ALL=C; export LC_ALL
PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin; export PATH
umask 022
cd /
exec 5>&1 6>&2
gl_say() { printf '%s: %s\n' "$1" "$2" >&2; return 1; }
gl_there() { [ -e "$1" ] || [ -L "$1" ]; }
gl_ticks() { shift 19; gl_t=$1; }
gl_kill() {
  if read -r gl_s 2>/dev/null </proc/"$1"/stat; then
    gl_ticks ${gl_s##*) }
    [ "$gl_t" = "$2" ] || [ "$2" = 0 ] || return 0
  fi
  kill -"$3" -"$1" 2>/dev/null
}
gl_feed() { if [ -n "$gl_i" ]; then printf "$gl_i" 2>/dev/null | ( exec "$@" ); else ( exec "$@" ); fi; }
gl_run() {
  gl_i=$1; gl_o=$2; gl_e=$3; shift 3
  if command -v -- "$1" >/dev/null 2>&1; then
    gl_rc=$( { { { gl_feed "$@" 3>&- 4>&- 5>&- 6>&-; echo "$?" >&4; } 2>&1 >&3 |
      { head -c "$gl_e" >&6; cat >/dev/null; } 3>&- 5>&-; } 3>&1 |
      { head -c "$gl_o" >&5; cat >/dev/null; } 6>&-; } 4>&1 )
  else gl_rc=absent; fi
}
gl_mkdir() {
  gl_new=0
  [ -d "$1" ] && return
  umask "${2:-077}"
  if mkdir -- "$1"; then
    if [ -z "$2" ] || [ -g "$1" ]; then gl_new=1; fi
    umask 077
  else umask 077; [ -d "$1" ]; fi
}
# Makes directories by one mkdir, as far as it can. $1: umask; $2: mode, for those that inherit a bit; then paths from the top down.
gl_mkdirs() {
  gl_m=$1; gl_t=$2; shift 2
  for gl_p do shift; [ -d "$gl_p" ] || set -- "$@" "$gl_p"; done
  [ $# -gt 1 ] || return 0
  umask "$gl_m"; mkdir -- "$@" 2>/dev/null; umask 077
  for gl_p do [ ! -g "$gl_p" ] || chmod -- "$gl_t" "$gl_p"; done
}
gl_create() {
  if gl_there "$1"; then gl_say "$1" 'File exists'; return; fi
  ( umask 022; set -C; : >"$1" ) && return
  if gl_there "$1"; then gl_say "$1" 'File exists'; fi
  return 1
}
# Writes a file; gl_new is 0 if it is a new one that has got its mode. $3: umask for a new file.
gl_write() {
  gl_new=1
  [ -z "$3" ] || gl_there "$1" || { umask "$3"; gl_new=0; }
  { printf "$2" >"$1"; } 2>/dev/null || printf "$2" | dd of="$1" bs=65536 status=none
  set -- $?; umask 077; return "$1"
}
gl_modes() { [ $# = 0 ] || chmod -- "$gl_mode" "$@"; }
# Makes links named like their targets by one ln, as far as it can, and adds them to gl_links. $1: their directory; then targets.
gl_symlinks() {
  gl_d=$1; shift
  for gl_p do shift; gl_there "$gl_d/${gl_p##*/}" || set -- "$@" "$gl_p"; done
  [ $# -gt 1 ] || return 0
  ln -s -- "$@" "$gl_d" 2>/dev/null || return 0
  for gl_p do gl_links="$gl_links/$gl_d/${gl_p##*/}//$gl_p/"; done
}
gl_symlink() {
  case $gl_links in *"/$1//$2/"*) return 0;; esac
  if [ -L "$1" ] && [ "$(readlink -- "$1"; echo .)" = "$2
." ]; then return 0; fi
  if gl_there "$1"; then gl_say "$1" 'File exists'; return; fi
  ln -sn -- "$2" "$1"
}
gl_read() {
  if [ -f "$1" ]; then head -c "$2" -- "$1"
  elif [ -d "$1" ]; then gl_say "$1" 'Is a directory'
  elif [ -e "$1" ]; then gl_say "$1" 'Not a regular file'
  else stat -L -c %F -- "$1" >/dev/null; fi
}
gl_tail() {
  if [ -L "$1" ] || { [ -e "$1" ] && [ ! -f "$1" ]; }; then gl_say "$1" 'Not a regular file'; return; fi
  gl_f=$(stat -c %d:%i -- "$1") || return
  if [ "$(stat -L -c %d:%i /proc/self/fd/7)" = "$gl_f" ]; then tail -c "$2" <&7
  else gl_say "$1" 'Not a regular file'; fi 7<"$1"
}
gl_list() {
  [ -d "$1" ] || { stat -L -c %F -- "$1" >/dev/null && gl_say "$1" 'Not a directory'; return; }
  { [ -r "$1" ] && [ -x "$1" ]; } || { gl_say "$1" 'Permission denied'; return; }
  for gl_f in "$1"/* "$1"/.*; do
    gl_n=${gl_f##*/}
    case $gl_n in .|..) continue;; esac
    if [ -L "$gl_f" ]; then gl_k=l; elif [ -f "$gl_f" ]; then gl_k=f; elif [ -d "$gl_f" ]; then gl_k=d
    elif [ -p "$gl_f" ]; then gl_k=p; elif [ -S "$gl_f" ]; then gl_k=s; elif [ -c "$gl_f" ]; then gl_k=c
    elif [ -b "$gl_f" ]; then gl_k=b; else continue; fi
    printf '%s%s\000' "$gl_k" "$gl_n"
  done
}
