# shellcheck shell=sh disable=SC2015
# POSIX sh for removals. It changes into a directory before it removes entries, and uses base names only, so that links created
# concurrently have no effect and no path is too long. GNU's rm does the same for the tree below. With another rm (busybox's
# uses whole paths) the tree is flattened: subdirectories are moved to the top before their parent is removed, so that a timeout
# does not lose progress, even in deep trees.
gl_files() { find . -mindepth 1 -maxdepth 1 ! -type d -exec rm -f -- {} +; }
gl_flatten() {
  cd -P -- "$1" && [ "$(stat -c %d:%i ..)" = "$gl_top" ] || { gl_say "$1" 'Not a directory'; return; }
  [ "$(stat -c %d .)" = "${gl_top%:*}" ] || { gl_say "$1 is a mount point" 'Device or resource busy'; return; }
  gl_files || return
  for gl_s in ./* ./.[!.]* ./..?*; do
    if [ -L "$gl_s" ] || [ ! -d "$gl_s" ]; then continue; fi
    while gl_n=$((gl_n + 1)); gl_there "../.graftlet-$gl_n"; do :; done
    mv -T -- "$gl_s" "../.graftlet-$gl_n" || return
  done
  cd -P .. && [ "$(stat -c %d:%i .)" = "$gl_top" ] || { gl_say "$1 was moved" 'Device or resource busy'; return; }
  rmdir -- "$1"
}
gl_clear() {
  gl_top=$(stat -c %d:%i .) || return
  cd -P -- "$1" && [ "$(stat -c %d:%i ..)" = "$gl_top" ] || { gl_say "$1" 'Not a directory'; return; }
  gl_top=$(stat -c %d:%i .); gl_n=0; gl_any=1
  while [ $gl_any = 1 ]; do
    gl_any=0
    gl_files || return
    find . -mindepth 1 -maxdepth 1 -type d -exec rmdir -- {} + 2>/dev/null
    for gl_f in ./* ./.[!.]* ./..?*; do
      if [ -L "$gl_f" ] || [ ! -d "$gl_f" ]; then continue; fi
      gl_any=1
      gl_flatten "$gl_f" || return
    done
  done
}
gl_remove_tree() {
  gl_m=$(GL_P=${PWD%/}/$1 awk 'BEGIN { p = ENVIRON["GL_P"]; gsub(/\\/, "\\134", p); gsub(/ /, "\\040", p); gsub(/\t/, "\\011", p); gsub(/\n/, "\\012", p) }
    $5 == p || index($5, p "/") == 1 { print $5; exit }' /proc/self/mountinfo) || return
  if [ -n "$gl_m" ]; then gl_say "$gl_m is a mount point" 'Device or resource busy'; return; fi
  if rm -rf --one-file-system -- '' 2>/dev/null; then rm -rf --one-file-system -- "./$1"
  else ( gl_clear "./$1" ) && rmdir -- "./$1"; fi
}
gl_remove() {
  [ -d "$1" ] || return 0
  (
    cd -P -- "$1" || { gl_say "$1" 'Permission denied'; exit; }
    gl_there "./$2" || exit 0
    if [ -L "./$2" ] || [ ! -d "./$2" ]; then rm -f -- "./$2"
    elif [ "$3" = tree ]; then gl_remove_tree "$2"
    else rmdir -- "./$2"; fi || ! gl_there "./$2"
  )
}
