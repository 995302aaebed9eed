// Plays the conformance scenarios over gRPC. It knows the code that is generated from the published
// descriptor set, and nothing else of us.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

type operation func(context.Context, json.RawMessage) (any, error)

// taking decodes an operation's arguments before it runs.
func taking[A any](run func(context.Context, A) (any, error)) operation {
	return func(ctx context.Context, raw json.RawMessage) (any, error) {
		var args A
		if err := json.Unmarshal(raw, &args); err != nil {
			return nil, err
		}
		return run(ctx, args)
	}
}

type refusal struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// The names of the codes as the protocol spells them; the library's own are for reading.
var codeNames = map[codes.Code]string{
	codes.InvalidArgument:    "INVALID_ARGUMENT",
	codes.FailedPrecondition: "FAILED_PRECONDITION",
	codes.Unauthenticated:    "UNAUTHENTICATED",
	codes.NotFound:           "NOT_FOUND",
	codes.Aborted:            "ABORTED",
	codes.AlreadyExists:      "ALREADY_EXISTS",
}

func answer(value any, err error) map[string]any {
	if err == nil {
		return map[string]any{"value": value}
	}
	found, ok := status.FromError(err)
	if !ok {
		fail(err)
	}
	name, known := codeNames[found.Code()]
	if !known {
		name = found.Code().String()
	}
	return map[string]any{"error": refusal{name, found.Message()}}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func main() {
	d := &driver{}
	operations := d.operations()
	lines := bufio.NewReader(os.Stdin)
	answers := json.NewEncoder(os.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var asked struct {
			Op   string
			Args json.RawMessage
		}
		if err := json.Unmarshal(line, &asked); err != nil {
			fail(err)
		}
		run, known := operations[asked.Op]
		if !known {
			fail(fmt.Errorf("no operation %q", asked.Op))
		}
		if err := answers.Encode(answer(run(d.context(), asked.Args))); err != nil {
			fail(err)
		}
	}
}

// pages asks for the pages of a list until there is no next one.
func pages[R interface{ GetNextPage() string }, T any](
	ask func(page *string) (R, error), items func(R) []T,
) ([]T, error) {
	found := []T{}
	var page *string
	for {
		response, err := ask(page)
		if err != nil {
			return nil, err
		}
		found = append(found, items(response)...)
		next := response.GetNextPage()
		if next == "" {
			return found, nil
		}
		page = &next
	}
}
