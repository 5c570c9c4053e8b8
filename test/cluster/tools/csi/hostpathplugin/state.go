package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"time"
)

// volume is what the driver knows of a volume. Its data lie in a folder or file of its ID's name below the driver's folder.
type volume struct {
	ID, Name string
	Size     int64
	Block    bool
	// An inline volume ends when it is unpublished.
	Ephemeral bool
	Kind      string
	// IDs of what it was made from.
	FromSnapshot, FromVolume string
	// Changeable parameters.
	Mutable map[string]string
	// Node that it is attached to, and how.
	Attached         string
	AttachedReadonly bool
	Staged           paths
	Published        paths
}

// snapshot is a copy of a volume's data.
type snapshot struct {
	ID, Name, Volume string
	Size             int64
	Block            bool
	Created          time.Time
}

// paths is a set of paths.
type paths []string

func (p *paths) add(path string) {
	if !slices.Contains(*p, path) {
		*p = append(*p, path)
	}
}

func (p *paths) remove(path string) {
	*p = slices.DeleteFunc(*p, func(other string) bool { return other == path })
}

// state is all that survives a restart of the driver.
type state struct {
	Volumes   map[string]*volume
	Snapshots map[string]*snapshot
	folder    string
}

func openState(folder string) (*state, error) {
	read := &state{Volumes: map[string]*volume{}, Snapshots: map[string]*snapshot{}, folder: folder}
	text, err := os.ReadFile(read.file())
	if errors.Is(err, os.ErrNotExist) {
		return read, nil
	}
	if err != nil {
		return nil, err
	}
	return read, json.Unmarshal(text, read)
}

func (s *state) file() string { return filepath.Join(s.folder, "state.json") }

// data is where a volume's data lie.
func (s *state) data(id string) string { return filepath.Join(s.folder, id) }

// snapshotData is where a snapshot's data lie.
func (s *state) snapshotData(id string) string { return filepath.Join(s.folder, id+".snap") }

// save writes the state as a whole, or leaves the old one.
func (s *state) save() error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	partial := s.file() + ".partial"
	if err := os.WriteFile(partial, text, 0o600); err != nil {
		return err
	}
	return os.Rename(partial, s.file())
}

func (s *state) volumeByName(name string) *volume {
	for _, volume := range s.Volumes {
		if volume.Name == name {
			return volume
		}
	}
	return nil
}

func (s *state) snapshotByName(name string) *snapshot {
	for _, snapshot := range s.Snapshots {
		if snapshot.Name == name {
			return snapshot
		}
	}
	return nil
}

// sortedIDs gives pages of a list the same order each time.
func sortedIDs[T any](known map[string]T) []string {
	ids := make([]string, 0, len(known))
	for id := range known {
		ids = append(ids, id)
	}
	sort.Strings(ids)
	return ids
}
