package seal

import (
	"encoding/json"
	"fmt"
	"time"
)

const (
	// MaxGrant is the most characters of a sealed grant, as Workstation's
	// status has it.
	MaxGrant = 32768
	// MaxSlots is the most slots of a grant.
	MaxSlots = 64
)

// Slot is one place of a workstation's inbox.
type Slot struct {
	// N is the slot's number, from 1.
	N int64 `json:"n"`
	// URL takes one PUT of one object. Whoever has it may write: it is as
	// secret as a key for as long as it is valid.
	URL string `json:"url"`
	// Headers are to be sent with the PUT exactly so: they are signed.
	Headers map[string]string `json:"headers,omitempty"`
}

// Grant is what a workstation needs to upload.
type Grant struct {
	// Slots are the slots, at most MaxSlots.
	Slots []Slot `json:"slots"`
	// ExpiresAt is when the URLs stop working, by the store's clock. It is for
	// people: a workstation learns it from the store's answer.
	ExpiresAt time.Time `json:"expiresAt"`
}

// SealGrant seals a grant to a workstation's public key. More than MaxGrant
// characters is ErrTooLarge.
func SealGrant(g Grant, recipient string) (string, error) { //nolint:revive // seal.Grant is the type
	if len(g.Slots) > MaxSlots {
		return "", fmt.Errorf("seal grant of %d slots: %w", len(g.Slots), ErrTooLarge)
	}
	sealed, err := sealJSON(g, recipient)
	if err != nil {
		return "", fmt.Errorf("seal grant: %w", err)
	}
	if len(sealed) > MaxGrant {
		return "", fmt.Errorf("seal grant of %d characters: %w", len(sealed), ErrTooLarge)
	}
	return sealed, nil
}

// OpenGrant is the inverse of SealGrant. Which hosts the URLs may name is for
// the caller to check.
func (i Identity) OpenGrant(sealed string) (Grant, error) {
	var g Grant
	if err := i.openJSON(sealed, &g); err != nil {
		return Grant{}, fmt.Errorf("open grant: %w", err)
	}
	if len(g.Slots) > MaxSlots {
		return Grant{}, fmt.Errorf("open grant of %d slots: %w", len(g.Slots), ErrTooLarge)
	}
	for _, slot := range g.Slots {
		if slot.N < 1 || slot.URL == "" {
			return Grant{}, fmt.Errorf("open grant: a slot without number or URL: %w", ErrCorrupt)
		}
	}
	return g, nil
}

// WhisperText is one whisper to the owner of a session.
type WhisperText struct {
	// ID names the whisper. Delivery is confirmed by it.
	ID string `json:"id"`
	// Session is the coding agent's session id, Project and Memory say where the
	// text comes from.
	Session string `json:"session"`
	Project string `json:"project"`
	Memory  string `json:"memory"`
	// Text is what memory has to say.
	Text string `json:"text"`
	// At is when it was said, Expires when it is no longer to be shown.
	At      time.Time `json:"at"`
	Expires time.Time `json:"expires"`
	// Source is what the text came from, for the question why.
	Source WhisperSource `json:"source,omitzero"`
}

// WhisperSource says what a whisper came from. Every field may be empty.
type WhisperSource struct {
	// Session is the name of the Session whose words the agent was given, and
	// Workstation that of the writer; FromSegment and ToSegment are the first
	// and the last of its segments in them.
	Session     string `json:"session,omitempty"`
	Workstation string `json:"workstation,omitempty"`
	FromSegment int64  `json:"fromSegment,omitempty"`
	ToSegment   int64  `json:"toSegment,omitempty"`
	// Agent and Conversation are Letta's, Revision that of the memory after the
	// turn.
	Agent        string `json:"agent,omitempty"`
	Conversation string `json:"conversation,omitempty"`
	Revision     string `json:"revision,omitempty"`
}

// SealWhisper seals a whisper to the owner's public keys.
func SealWhisper(w WhisperText, recipients ...string) (string, error) { //nolint:revive // named as its sibling
	sealed, err := sealJSON(w, recipients...)
	if err != nil {
		return "", fmt.Errorf("seal whisper: %w", err)
	}
	return sealed, nil
}

// OpenWhisper is the inverse of SealWhisper.
func (i Identity) OpenWhisper(sealed string) (WhisperText, error) {
	var w WhisperText
	if err := i.openJSON(sealed, &w); err != nil {
		return WhisperText{}, fmt.Errorf("open whisper: %w", err)
	}
	if w.ID == "" {
		return WhisperText{}, fmt.Errorf("open whisper: no id: %w", ErrCorrupt)
	}
	return w, nil
}

func sealJSON(v any, recipients ...string) (string, error) {
	plain, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	return Seal(plain, recipients...)
}

func (i Identity) openJSON(sealed string, v any) error {
	plain, err := i.Open(sealed)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(plain, v); err != nil {
		return ErrCorrupt // json's error may quote the text
	}
	return nil
}
