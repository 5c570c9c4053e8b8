package main

import (
	"context"
	"encoding/json"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"
)

// call is what the log says of a call. Kubernetes' tests, and graftlet's, read it there, secrets included.
type call struct {
	Method    string
	Request   any
	Response  any
	Error     string
	FullError *callError
}

type callError struct {
	Code    codes.Code `json:"code"`
	Message string     `json:"message"`
}

// logCall writes each call as one line of JSON after `gRPCCall: `, from verbosity 5 on, and errors always.
func logCall(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	response, err := handle(ctx, request)
	said := call{Method: info.FullMethod, Request: request, Response: response}
	if err != nil {
		klog.ErrorS(err, "A call failed", "method", info.FullMethod)
		said.Response = nil
		said.Error = err.Error()
		said.FullError = &callError{Code: status.Code(err), Message: status.Convert(err).Message()}
	}
	if klog.V(5).Enabled() {
		line, failed := json.Marshal(said)
		if failed != nil {
			klog.ErrorS(failed, "A call cannot be logged", "method", info.FullMethod)
		}
		klog.Infof("gRPCCall: %s", line)
	}
	return response, err
}
