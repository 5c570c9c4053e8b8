package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// attach gives a file a loop device, or finds the one that it has.
func attach(path string) (string, error) {
	if found, err := deviceOf(path); err != nil || found != "" {
		return found, err
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer file.Close()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer control.Close()
	for {
		number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return "", err
		}
		device, err := deviceNode(number)
		if err != nil {
			return "", err
		}
		err = configure(device, file)
		// Somebody else was quicker.
		if errors.Is(err, unix.EBUSY) {
			continue
		}
		return device, err
	}
}

// deviceNode is the path of a loop device, whose node is made where /dev does not show it.
func deviceNode(number int) (string, error) {
	path := fmt.Sprintf("/dev/loop%d", number)
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		return path, err
	}
	err := unix.Mknod(path, unix.S_IFBLK|0o660, int(unix.Mkdev(7, uint32(number))))
	if errors.Is(err, unix.EEXIST) {
		err = nil
	}
	return path, err
}

func configure(device string, file *os.File) error {
	loop, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer loop.Close()
	config := unix.LoopConfig{Fd: uint32(file.Fd())}
	copy(config.Info.File_name[:unix.LO_NAME_SIZE-1], file.Name())
	return unix.IoctlLoopConfigure(int(loop.Fd()), &config)
}

// deviceOf finds the loop device of a file by what the file is, as its path may be another in another container; empty
// where it has none.
func deviceOf(path string) (string, error) {
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return "", nil
		}
		return "", err
	}
	used, err := filepath.Glob("/sys/block/loop*/loop")
	if err != nil {
		return "", err
	}
	for _, folder := range used {
		device := filepath.Join("/dev", strings.Split(folder, "/")[3])
		// One that went away meanwhile is nobody's.
		if info := statusOf(device); info != nil && info.Inode == stat.Ino && info.Device == stat.Dev {
			return device, nil
		}
	}
	return "", nil
}

func statusOf(device string) *unix.LoopInfo64 {
	loop, err := os.Open(device)
	if err != nil {
		return nil
	}
	defer loop.Close()
	info, err := unix.IoctlLoopGetStatus64(int(loop.Fd()))
	if err != nil {
		return nil
	}
	return info
}

// detach takes a file's loop device away, if it has one; the kernel does it when the last user closes the device.
func detach(path string) error { return control(path, unix.LOOP_CLR_FD) }

// refresh has the loop device of a file, if it has one, take on the file's size.
func refresh(path string) error { return control(path, unix.LOOP_SET_CAPACITY) }

func control(path string, request uint) error {
	device, err := deviceOf(path)
	if err != nil || device == "" {
		return err
	}
	loop, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer loop.Close()
	return unix.IoctlSetInt(int(loop.Fd()), request, 0)
}
