package main

import (
	"errors"
	"fmt"
	"sort"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/api/resource"
)

// kindParameter is the parameter of a storage class that says of which capacity a volume takes.
const kindParameter = "kind"

// capacities is the room that there is for volumes, in bytes by kind. Without any, there is room for all.
type capacities map[string]int64

func (c *capacities) String() string {
	said := []string{}
	for kind, bytes := range *c {
		said = append(said, fmt.Sprintf("%s=%d", kind, bytes))
	}
	sort.Strings(said)
	return strings.Join(said, ",")
}

// Set adds KIND=QUANTITY.
func (c *capacities) Set(text string) error {
	kind, quantity, found := strings.Cut(text, "=")
	if !found {
		return errors.New("must be of format <kind>=<quantity>")
	}
	parsed, err := resource.ParseQuantity(quantity)
	if err != nil {
		return err
	}
	if *c == nil {
		*c = capacities{}
	}
	(*c)[kind] = parsed.Value()
	return nil
}

// kindOf names the kind that parameters or attributes ask for; where there are kinds, one of them must be named.
func (d *driver) kindOf(parameters map[string]string) (string, error) {
	kind := parameters[kindParameter]
	if len(d.config.capacity) == 0 {
		return kind, nil
	}
	if _, known := d.config.capacity[kind]; !known {
		return "", status.Errorf(codes.InvalidArgument, "storage kind %q unknown: the parameter %q names one of %s", kind, kindParameter, d.config.capacity.String())
	}
	return kind, nil
}

// free is the room that is left for a kind, in bytes.
func (d *driver) free(kind string) int64 {
	total, limited := d.config.capacity[kind]
	if !limited {
		return d.config.maxVolumeSize
	}
	for _, volume := range d.state.Volumes {
		if volume.Kind == kind {
			total -= volume.Size
		}
	}
	return max(total, 0)
}

// checkSize refuses a volume, or its growth by so many bytes, that there is no room for.
func (d *driver) checkSize(size, growth int64, kind string) error {
	if size > d.config.maxVolumeSize {
		return status.Errorf(codes.OutOfRange, "requested capacity %d exceeds maximum allowed %d", size, d.config.maxVolumeSize)
	}
	if left := d.free(kind); len(d.config.capacity) > 0 && growth > left {
		return status.Errorf(codes.ResourceExhausted, "requested capacity %d exceeds remaining capacity for %q, %d", growth, kind, left)
	}
	return nil
}
