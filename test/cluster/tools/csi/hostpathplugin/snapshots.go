package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

func (d *driver) CreateSnapshot(_ context.Context, request *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	if request.GetName() == "" {
		return nil, missing("Name")
	}
	if request.GetSourceVolumeId() == "" {
		return nil, missing("SourceVolumeId")
	}
	d.lock.Lock()
	defer d.lock.Unlock()
	if existing := d.state.snapshotByName(request.GetName()); existing != nil {
		if existing.Volume != request.GetSourceVolumeId() {
			return nil, status.Errorf(codes.AlreadyExists, "snapshot with the same name: %s but with different SourceVolumeId already exist", request.GetName())
		}
		return &csi.CreateSnapshotResponse{Snapshot: existing.describe()}, nil
	}
	volume, err := d.known(request.GetSourceVolumeId())
	if err != nil {
		return nil, err
	}
	made := &snapshot{
		ID:      uuid.NewString(),
		Name:    request.GetName(),
		Volume:  volume.ID,
		Size:    volume.Size,
		Block:   volume.Block,
		Created: time.Now(),
	}
	data := d.state.snapshotData(made.ID)
	if err := copyTree(d.state.data(volume.ID), data); err != nil {
		return nil, errors.Join(broken("copy the volume", err), os.RemoveAll(data))
	}
	d.state.Snapshots[made.ID] = made
	return &csi.CreateSnapshotResponse{Snapshot: made.describe()}, d.saved()
}

func (s *snapshot) describe() *csi.Snapshot {
	return &csi.Snapshot{
		SnapshotId:     s.ID,
		SourceVolumeId: s.Volume,
		SizeBytes:      s.Size,
		CreationTime:   timestamppb.New(s.Created),
		ReadyToUse:     true,
	}
}

func (d *driver) DeleteSnapshot(_ context.Context, request *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	if request.GetSnapshotId() == "" {
		return nil, missing("Snapshot ID")
	}
	d.lock.Lock()
	defer d.lock.Unlock()
	found, known := d.state.Snapshots[request.GetSnapshotId()]
	if !known {
		return &csi.DeleteSnapshotResponse{}, nil
	}
	if err := os.RemoveAll(d.state.snapshotData(found.ID)); err != nil {
		return nil, broken("remove the snapshot", err)
	}
	delete(d.state.Snapshots, found.ID)
	return &csi.DeleteSnapshotResponse{}, d.saved()
}

func (d *driver) ListSnapshots(_ context.Context, request *csi.ListSnapshotsRequest) (*csi.ListSnapshotsResponse, error) {
	d.lock.Lock()
	defer d.lock.Unlock()
	matching := []*csi.Snapshot{}
	for _, id := range sortedIDs(d.state.Snapshots) {
		found := d.state.Snapshots[id]
		if wanted := request.GetSnapshotId(); wanted != "" && wanted != id {
			continue
		}
		if wanted := request.GetSourceVolumeId(); wanted != "" && wanted != found.Volume {
			continue
		}
		matching = append(matching, found.describe())
	}
	from, to, next, err := page(len(matching), request.GetStartingToken(), request.GetMaxEntries())
	if err != nil {
		return nil, err
	}
	said := &csi.ListSnapshotsResponse{NextToken: next}
	for _, found := range matching[from:to] {
		said.Entries = append(said.Entries, &csi.ListSnapshotsResponse_Entry{Snapshot: found})
	}
	return said, nil
}
