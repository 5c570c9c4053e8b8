# shellcheck shell=sh disable=SC2154
# Enrols this machine for a GraftedNode with a one-time token, and opens its reverse tunnel. These variables are set above: node, login
# (user name of the enrolment), user (graftlet's on this machine), host, port, listener_key.
set -eu
umask 077
[ "$(id -u)" = 0 ] || { echo "graftlet: run this script as root" >&2; exit 1; }
host_key=
for file in /etc/ssh/ssh_host_ed25519_key.pub /etc/ssh/ssh_host_ecdsa_key.pub /etc/ssh/ssh_host_rsa_key.pub; do
  [ -n "$host_key" ] || [ ! -r "$file" ] || host_key=$file
done
[ -n "$host_key" ] || { echo "graftlet: sshd has no host key in /etc/ssh: install and start it first" >&2; exit 1; }
home=$({ getent passwd "$user" 2>/dev/null || grep "^$user:" /etc/passwd; } | cut -d: -f6)
[ -d "$home" ] || { echo "graftlet: user $user has no home directory on this machine" >&2; exit 1; }
[ -f /etc/graftlet-machine ] || ssh-keygen -q -t ed25519 -N '' -C "graftlet $node" -f /etc/graftlet-machine
echo "graftlet-listener $listener_key" >/etc/graftlet-listener
options="-F none -p $port -i /etc/graftlet-machine -o IdentitiesOnly=yes -o BatchMode=yes -o ConnectTimeout=5"
options="$options -o HostKeyAlias=graftlet-listener -o UserKnownHostsFile=/etc/graftlet-listener -o StrictHostKeyChecking=yes"
# shellcheck disable=SC2086 # Not quoted: the options are separate words.
answer=$(ssh $options -T -l "$login" "$host" <"$host_key")
if [ -n "$answer" ]; then
  mkdir -p "$home/.ssh"
  touch "$home/.ssh/authorized_keys"
  grep -qxF "$answer" "$home/.ssh/authorized_keys" || echo "$answer" >>"$home/.ssh/authorized_keys"
  chown -R "$user:" "$home/.ssh"
  # With SELinux, sshd cannot read files that are labelled for another directory.
  ! command -v restorecon >/dev/null || restorecon -R "$home/.ssh" || true
fi
tunnel="$(command -v ssh) -N -R 22:127.0.0.1:22 $options -o ExitOnForwardFailure=yes -o ServerAliveInterval=5 -o ServerAliveCountMax=2 graftlet@$host"
if [ -d /run/systemd/system ]; then
  cat >/etc/systemd/system/graftlet-link.service <<END
[Unit]
Description=Reverse tunnel to graftlet
After=network-online.target
Wants=network-online.target
StartLimitIntervalSec=0

[Service]
ExecStart=$tunnel
Restart=always
RestartSec=5

[Install]
WantedBy=multi-user.target
END
  systemctl daemon-reload
  systemctl enable --quiet graftlet-link
  systemctl restart graftlet-link
  echo "graftlet: the machine has enrolled as $node, and graftlet-link.service keeps its tunnel open"
else
  echo "graftlet: the machine has enrolled as $node; there is no systemd, so keep this command running:"
  echo "$tunnel"
fi
