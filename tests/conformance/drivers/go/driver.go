package main

import (
	"context"
	"encoding/json"
	"io"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	ledgerv1 "example.com/conformance/contracts/counterfoil/ledger/v1"
	registryv1 "example.com/conformance/contracts/counterfoil/registry/v1"
)

const model = "claude-sonnet-4-5"

type driver struct {
	connection   *grpc.ClientConn
	key          string
	agents       registryv1.AgentServiceClient
	environments registryv1.EnvironmentServiceClient
	sessions     ledgerv1.SessionServiceClient
	stream       grpc.ServerStreamingClient[ledgerv1.StreamEventsResponse]
	cancel       context.CancelFunc
	frames       []*ledgerv1.StreamFrame
}

type identified struct {
	ID string `json:"id"`
}

type ofSession struct {
	SessionID string `json:"session_id"`
}

type agent struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	Version  int64  `json:"version"`
	Archived bool   `json:"archived"`
}

type session struct {
	ID           string  `json:"id"`
	Title        *string `json:"title"`
	Status       string  `json:"status"`
	AgentVersion int64   `json:"agent_version"`
	Archived     bool    `json:"archived"`
}

type clientEvent struct {
	Message   *string
	Result    string
	Text      string
	Interrupt bool
}

// context carries the credential as metadata of a call.
func (d *driver) context() context.Context {
	return metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer "+d.key)
}

func (d *driver) operations() map[string]operation {
	return map[string]operation{
		"connect":            taking(d.connect),
		"agent_create":       taking(d.agentCreate),
		"agent_get":          taking(d.agentGet),
		"agent_update":       taking(d.agentUpdate),
		"agent_versions":     taking(d.agentVersions),
		"agent_archive":      taking(d.agentArchive),
		"environment_create": taking(d.environmentCreate),
		"environment_delete": taking(d.environmentDelete),
		"session_create":     taking(d.sessionCreate),
		"session_get":        taking(d.sessionGet),
		"session_update":     taking(d.sessionUpdate),
		"session_list":       taking(d.sessionList),
		"session_archive":    taking(d.sessionArchive),
		"session_delete":     taking(d.sessionDelete),
		"send":               taking(d.send),
		"stream_open":        taking(d.streamOpen),
		"stream_next":        taking(d.streamNext),
		"stream_close":       taking(d.streamClose),
		"events_list":        taking(d.eventsList),
		"pending_actions":    taking(d.pendingActions),
		"thread_list":        taking(d.threadList),
		"thread_events":      taking(d.eventsList),
	}
}

func (d *driver) connect(_ context.Context, args struct {
	Address string `json:"grpc_address"`
	Key     string
}) (any, error) {
	if d.connection != nil {
		d.connection.Close()
	}
	connection, err := grpc.NewClient(
		args.Address, grpc.WithTransportCredentials(insecure.NewCredentials()),
	)
	if err != nil {
		return nil, err
	}
	d.connection, d.key = connection, args.Key
	d.agents = registryv1.NewAgentServiceClient(connection)
	d.environments = registryv1.NewEnvironmentServiceClient(connection)
	d.sessions = ledgerv1.NewSessionServiceClient(connection)
	return "grpc-go " + grpc.Version, nil
}

func agentOf(found *registryv1.Agent) agent {
	return agent{found.GetId(), found.GetName(), found.GetVersion(), found.GetArchivedAt() != nil}
}

func (d *driver) agentCreate(ctx context.Context, args struct {
	Name  string
	Tools []string
}) (any, error) {
	request := &registryv1.CreateAgentRequest{
		Name: args.Name, Model: &registryv1.ModelConfig{Id: model},
	}
	for _, name := range args.Tools {
		custom := &registryv1.CustomTool{
			Name:        name,
			Description: "The " + name + ".",
			InputSchema: []byte(`{"type":"object","properties":{"text":{"type":"string"}}}`),
		}
		request.Tools = append(request.Tools, &registryv1.Tool{
			Tool: &registryv1.Tool_Custom{Custom: custom},
		})
	}
	response, err := d.agents.CreateAgent(ctx, request)
	return agentOf(response.GetAgent()), err
}

func (d *driver) agentGet(ctx context.Context, args struct {
	ID      string
	Version *int64
}) (any, error) {
	request := &registryv1.GetAgentRequest{AgentId: args.ID, Version: args.Version}
	response, err := d.agents.GetAgent(ctx, request)
	return agentOf(response.GetAgent()), err
}

func (d *driver) agentUpdate(ctx context.Context, args struct {
	ID      string
	Version *int64
	Name    *string
}) (any, error) {
	response, err := d.agents.UpdateAgent(ctx, &registryv1.UpdateAgentRequest{
		AgentId:    args.ID,
		Version:    args.Version,
		Name:       args.Name,
		UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"name"}},
	})
	return agentOf(response.GetAgent()), err
}

func (d *driver) agentVersions(ctx context.Context, args struct {
	ID    string
	Limit *int32
}) (any, error) {
	ask := func(page *string) (*registryv1.ListAgentVersionsResponse, error) {
		request := &registryv1.ListAgentVersionsRequest{
			AgentId: args.ID, Limit: args.Limit, Page: page,
		}
		return d.agents.ListAgentVersions(ctx, request)
	}
	found, err := pages(ask, (*registryv1.ListAgentVersionsResponse).GetData)
	return each(found, agentOf), err
}

func (d *driver) agentArchive(ctx context.Context, args identified) (any, error) {
	response, err := d.agents.ArchiveAgent(ctx, &registryv1.ArchiveAgentRequest{AgentId: args.ID})
	return agentOf(response.GetAgent()), err
}

func (d *driver) environmentCreate(ctx context.Context, args struct{ Name string }) (any, error) {
	request := &registryv1.CreateEnvironmentRequest{Name: args.Name}
	response, err := d.environments.CreateEnvironment(ctx, request)
	made := response.GetEnvironment()
	return map[string]string{"id": made.GetId(), "name": made.GetName()}, err
}

func (d *driver) environmentDelete(ctx context.Context, args identified) (any, error) {
	request := &registryv1.DeleteEnvironmentRequest{EnvironmentId: args.ID}
	response, err := d.environments.DeleteEnvironment(ctx, request)
	return response.GetId(), err
}

func statusOf(status ledgerv1.SessionStatus) string {
	return strings.ToLower(strings.TrimPrefix(status.String(), "SESSION_STATUS_"))
}

func sessionOf(found *ledgerv1.Session) session {
	made := session{
		ID:           found.GetId(),
		Status:       statusOf(found.GetStatus()),
		AgentVersion: found.GetAgent().GetVersion(),
		Archived:     found.GetArchivedAt() != nil,
	}
	if found != nil {
		made.Title = found.Title
	}
	return made
}

func (d *driver) sessionCreate(ctx context.Context, args struct {
	AgentID       string `json:"agent_id"`
	EnvironmentID string `json:"environment_id"`
	AgentVersion  *int64 `json:"agent_version"`
}) (any, error) {
	chosen := &ledgerv1.AgentVersionReference{Id: args.AgentID, Version: args.AgentVersion}
	response, err := d.sessions.CreateSession(ctx, &ledgerv1.CreateSessionRequest{
		Agent:         &ledgerv1.AgentReference{Reference: &ledgerv1.AgentReference_Agent{Agent: chosen}},
		EnvironmentId: args.EnvironmentID,
	})
	return sessionOf(response.GetSession()), err
}

func (d *driver) sessionGet(ctx context.Context, args identified) (any, error) {
	response, err := d.sessions.GetSession(ctx, &ledgerv1.GetSessionRequest{SessionId: args.ID})
	return sessionOf(response.GetSession()), err
}

func (d *driver) sessionUpdate(ctx context.Context, args struct {
	ID    string
	Title *string
}) (any, error) {
	response, err := d.sessions.UpdateSession(ctx, &ledgerv1.UpdateSessionRequest{
		SessionId:  args.ID,
		Title:      args.Title,
		UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"title"}},
	})
	return sessionOf(response.GetSession()), err
}

func (d *driver) sessionList(ctx context.Context, args struct {
	AgentID *string `json:"agent_id"`
	Limit   *int32
}) (any, error) {
	ask := func(page *string) (*ledgerv1.ListSessionsResponse, error) {
		request := &ledgerv1.ListSessionsRequest{
			AgentId: args.AgentID, Limit: args.Limit, Page: page,
		}
		return d.sessions.ListSessions(ctx, request)
	}
	found, err := pages(ask, (*ledgerv1.ListSessionsResponse).GetData)
	return each(found, sessionOf), err
}

func (d *driver) sessionArchive(ctx context.Context, args identified) (any, error) {
	request := &ledgerv1.ArchiveSessionRequest{SessionId: args.ID}
	response, err := d.sessions.ArchiveSession(ctx, request)
	return sessionOf(response.GetSession()), err
}

func (d *driver) sessionDelete(ctx context.Context, args identified) (any, error) {
	request := &ledgerv1.DeleteSessionRequest{SessionId: args.ID}
	response, err := d.sessions.DeleteSession(ctx, request)
	return response.GetId(), err
}

func eventOf(given clientEvent) *ledgerv1.ClientEvent {
	if given.Interrupt {
		return &ledgerv1.ClientEvent{Event: &ledgerv1.ClientEvent_UserInterrupt{
			UserInterrupt: &ledgerv1.UserInterrupt{},
		}}
	}
	if given.Message != nil {
		return &ledgerv1.ClientEvent{Event: &ledgerv1.ClientEvent_UserMessage{
			UserMessage: &ledgerv1.UserMessage{Content: content(*given.Message)},
		}}
	}
	return &ledgerv1.ClientEvent{Event: &ledgerv1.ClientEvent_UserCustomToolResult{
		UserCustomToolResult: &ledgerv1.UserCustomToolResult{
			CustomToolUseId: given.Result, Content: content(given.Text),
		},
	}}
}

func content(text string) []*ledgerv1.ContentBlock {
	block := &ledgerv1.ContentBlock_Text{Text: &ledgerv1.TextBlock{Text: text}}
	return []*ledgerv1.ContentBlock{{Block: block}}
}

func rawEvent(one []byte) json.RawMessage { return one }

func (d *driver) send(ctx context.Context, args struct {
	SessionID string `json:"session_id"`
	Events    []clientEvent
}) (any, error) {
	response, err := d.sessions.SubmitEvents(ctx, &ledgerv1.SubmitEventsRequest{
		SessionId: args.SessionID, Events: each(args.Events, eventOf),
	})
	return each(response.GetData(), rawEvent), err
}

func (d *driver) streamOpen(ctx context.Context, args ofSession) (any, error) {
	ctx, d.cancel = context.WithCancel(ctx)
	request := &ledgerv1.StreamEventsRequest{SessionId: args.SessionID}
	stream, err := d.sessions.StreamEvents(ctx, request)
	if err != nil {
		return nil, err
	}
	d.stream, d.frames = stream, nil
	// The first batch is empty: it says that the subscription is active.
	_, err = stream.Recv()
	return nil, err
}

func (d *driver) streamNext(context.Context, struct{}) (any, error) {
	for len(d.frames) == 0 {
		batch, err := d.stream.Recv()
		if err == io.EOF {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		d.frames = batch.GetFrames()
	}
	next := d.frames[0]
	d.frames = d.frames[1:]
	return json.RawMessage(next.GetJson()), nil
}

func (d *driver) streamClose(context.Context, struct{}) (any, error) {
	d.cancel()
	return nil, nil
}

func (d *driver) eventsList(ctx context.Context, args struct {
	SessionID string `json:"session_id"`
	ThreadID  string `json:"thread_id"`
	Limit     *int32
	Types     []string
	Order     string
}) (any, error) {
	orders := map[string]ledgerv1.ListOrder{
		"asc": ledgerv1.ListOrder_LIST_ORDER_ASC, "desc": ledgerv1.ListOrder_LIST_ORDER_DESC,
	}
	ask := func(page *string) (*ledgerv1.ListEventsResponse, error) {
		request := &ledgerv1.ListEventsRequest{
			SessionId: args.SessionID, ThreadId: args.ThreadID, Limit: args.Limit, Page: page,
			Types: args.Types, Order: orders[args.Order],
		}
		return d.sessions.ListEvents(ctx, request)
	}
	found, err := pages(ask, (*ledgerv1.ListEventsResponse).GetData)
	return each(found, rawEvent), err
}

type pending struct {
	EventID    string `json:"event_id"`
	Name       string `json:"name"`
	AnswerType string `json:"answer_type"`
}

func pendingOf(found *ledgerv1.PendingAction) pending {
	return pending{found.GetEventId(), found.GetName(), found.GetAnswerType()}
}

func (d *driver) pendingActions(ctx context.Context, args ofSession) (any, error) {
	request := &ledgerv1.ListPendingActionsRequest{SessionId: args.SessionID}
	response, err := d.sessions.ListPendingActions(ctx, request)
	return each(response.GetData(), pendingOf), err
}

type thread struct {
	ID     string  `json:"id"`
	Status string  `json:"status"`
	Parent *string `json:"parent"`
}

func threadOf(found *ledgerv1.Thread) thread {
	return thread{found.GetId(), statusOf(found.GetStatus()), found.ParentThreadId}
}

func (d *driver) threadList(ctx context.Context, args ofSession) (any, error) {
	ask := func(page *string) (*ledgerv1.ListThreadsResponse, error) {
		request := &ledgerv1.ListThreadsRequest{SessionId: args.SessionID, Page: page}
		return d.sessions.ListThreads(ctx, request)
	}
	found, err := pages(ask, (*ledgerv1.ListThreadsResponse).GetData)
	return each(found, threadOf), err
}

func each[A, B any](all []A, to func(A) B) []B {
	made := make([]B, len(all))
	for at, one := range all {
		made[at] = to(one)
	}
	return made
}
