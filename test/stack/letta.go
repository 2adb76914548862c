package stack

import (
	"context"
	"fmt"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/letta"
	"github.com/undersong-dev/undersong/internal/letta/appserver"
	"github.com/undersong-dev/undersong/internal/letta/appserver/appservertest"
	"github.com/undersong-dev/undersong/internal/letta/lettatest"
	"github.com/undersong-dev/undersong/internal/letta/modelstub"
)

// LettaServer is a Letta that a team's memory is kept by.
type LettaServer struct {
	// Backend, URL and Model are what a TeamMemory says of it.
	Backend    v1alpha1.Backend
	URL, Model string
	// Secret is what the Secret holds.
	Secret map[string]string
}

// AppServerOptions are those of a real App Server whose model follows the
// stand-in's rules. dir keeps its state; address is "" for a free port.
func AppServerOptions(install, dir, address string) appservertest.Options {
	return appservertest.Options{Install: install, Dir: dir, Address: address, Model: modelstub.Options{Respond: lettatest.Script}}
}

// AppServer describes a real App Server.
func AppServer(s *appservertest.Server) LettaServer {
	return LettaServer{
		Backend: v1alpha1.BackendAppServer, URL: s.URL, Model: appservertest.Model, Secret: map[string]string{"token": appservertest.Token},
	}
}

// LettaServer is the stack's own.
func (s *Stack) LettaServer() LettaServer {
	if s.App != nil {
		return AppServer(s.App)
	}
	return s.letta
}

// Conversations are those of the stack's Letta.
func (s *Stack) Conversations(ctx context.Context) ([]lettatest.Conversation, error) {
	if s.App != nil {
		return AppServerConversations(ctx, s.App)
	}
	return s.Letta.Conversations(), nil
}

// AppServerConversations reads all conversations of the agents that undersong
// made.
func AppServerConversations(ctx context.Context, s *appservertest.Server) ([]lettatest.Conversation, error) {
	c, err := appserver.New(appserver.Options{BaseURL: s.URL, Token: appservertest.Token})
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }() // it has only read
	return ConversationsOf(ctx, c)
}

// ConversationsOf reads all conversations of the agents that undersong made, at
// any Letta.
func ConversationsOf(ctx context.Context, c letta.Client) (out []lettatest.Conversation, err error) {
	agents, err := c.AgentsByTag(ctx, []string{"undersong"})
	if err != nil {
		return nil, err
	}
	roles := map[string]string{letta.UserMessage: "user", letta.AssistantMessage: "assistant", letta.SummaryMessage: "summary"}
	for _, a := range agents {
		found, err := c.Conversations(ctx, a.ID, "")
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			conversation := lettatest.Conversation{ID: f.ID, AgentID: a.ID, Summary: f.Summary}
			for m, err := range c.Messages(ctx, letta.Ref{AgentID: a.ID, ConversationID: f.ID}, "") {
				if err != nil {
					return nil, fmt.Errorf("list %s: %w", f.ID, err)
				}
				conversation.Messages = append(conversation.Messages, lettatest.Message{Role: roles[m.Type], Text: m.Text, OTID: m.OTID, RunID: m.RunID})
			}
			out = append(out, conversation)
		}
	}
	return out, nil
}
