package main

import (
	"errors"
	"os"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// flagNames are the mount options that a bind mount can have of its own.
var flagNames = map[string]uintptr{
	"ro":         unix.MS_RDONLY,
	"rw":         0,
	"noatime":    unix.MS_NOATIME,
	"nodiratime": unix.MS_NODIRATIME,
	"relatime":   unix.MS_RELATIME,
	"nodev":      unix.MS_NODEV,
	"noexec":     unix.MS_NOEXEC,
	"nosuid":     unix.MS_NOSUID,
}

// labelPrefix begins the mount option that gives all files of a file system one SELinux label.
const labelPrefix = "context="

// labelOf takes the SELinux label out of mount options; empty without one.
func labelOf(names []string) (label string, others []string) {
	for _, name := range names {
		if strings.HasPrefix(name, labelPrefix) {
			label = name
		} else {
			others = append(others, name)
		}
	}
	return label, others
}

// mountLabelled gives a volume's folder a file system of its own, in memory, with a label, unless it has one: only a file system can be
// mounted with a label, no bind mount.
func mountLabelled(data, label string) error {
	if mounted, err := isMounted(data); err != nil || mounted {
		return err
	}
	return unix.Mount("volume", data, "tmpfs", 0, label)
}

func mountFlags(names []string) (uintptr, error) {
	flags := uintptr(0)
	for _, name := range names {
		flag, known := flagNames[name]
		if !known {
			return 0, status.Errorf(codes.InvalidArgument, "mount flag %q is not one of a bind mount", name)
		}
		flags |= flag
	}
	return flags, nil
}

// isMounted says whether something is mounted at a path; nothing is where nothing lies.
func isMounted(path string) (bool, error) {
	mounted, err := mountinfo.Mounted(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return mounted, err
}

// bind mounts a file or folder at another, unless something is mounted there.
func bind(source, target string, flags uintptr) error {
	if mounted, err := isMounted(target); err != nil || mounted {
		return err
	}
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	if flags == 0 {
		return nil
	}
	// Only a second step gives a bind mount flags.
	if err := unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|flags, ""); err != nil {
		return errors.Join(err, unix.Unmount(target, unix.MNT_DETACH))
	}
	return nil
}

// unmount takes away all that is mounted at a path.
func unmount(path string) error {
	for {
		mounted, err := isMounted(path)
		if err != nil || !mounted {
			return err
		}
		if err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW); err != nil {
			return err
		}
	}
}

// removeTarget unmounts a path and removes the empty folder or file that is left. A folder with content is not removed: it
// would be what was mounted.
func removeTarget(path string) error {
	if err := unmount(path); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
