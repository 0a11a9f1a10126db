package mcpserver

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	stateLife = 10 * time.Minute // of a request state, and of what waits for it
	maxStates = 10_000           // used ones that are remembered
)

// states seals what a client carries from an answer that asks for input to the
// call that brings it (spec/mcp.md section 1.3): nobody else can use it, for
// nothing else, and only once. The key is made at the start: what it would lead
// to lives no longer either.
type states struct {
	aead cipher.AEAD

	mu   sync.Mutex
	used map[string]time.Time // nonce -> when it would have expired
}

// A state is what is sealed.
type state struct {
	Nonce     string    `json:"n"`
	Principal string    `json:"p"`
	Tool      string    `json:"t"`
	Digest    string    `json:"d"` // of the arguments
	Expires   time.Time `json:"e"`
	Ask       string    `json:"a,omitempty"` // the turn that waits
}

func newStates() *states {
	var key [32]byte
	rand.Read(key[:]) // never fails
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // the key has the right size
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err) // likewise
	}
	return &states{aead: aead, used: map[string]time.Time{}}
}

// seal makes the state of a call.
func (s *states) seal(ctx context.Context, req *mcp.CallToolRequest, ask string) string {
	plain, err := json.Marshal(state{
		Nonce: rand.Text(), Principal: principalOf(ctx), Tool: req.Params.Name, Digest: digest(req.Params.Arguments),
		Expires: time.Now().Add(stateLife), Ask: ask,
	})
	if err != nil {
		panic(err) // texts and a time
	}
	nonce := make([]byte, s.aead.NonceSize())
	rand.Read(nonce)
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nonce, nonce, plain, nil))
}

// errState is the protocol error for a state that is not, or no longer, good.
var errState = &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "requestState is not valid for this call, or it has expired or been used already"}

// open checks the state of a call and uses it up.
func (s *states) open(ctx context.Context, req *mcp.CallToolRequest) (*state, error) {
	sealed, err := base64.RawURLEncoding.DecodeString(req.Params.RequestState)
	n := s.aead.NonceSize()
	if err != nil || len(sealed) < n {
		return nil, errState
	}
	plain, err := s.aead.Open(nil, sealed[:n], sealed[n:], nil)
	var st state
	if err != nil || json.Unmarshal(plain, &st) != nil {
		return nil, errState
	}
	now := time.Now()
	if st.Principal != principalOf(ctx) || st.Tool != req.Params.Name || st.Digest != digest(req.Params.Arguments) || !now.Before(st.Expires) {
		return nil, errState
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, again := s.used[st.Nonce]; again {
		return nil, errState
	}
	for nonce, expires := range s.used {
		if !now.Before(expires) {
			delete(s.used, nonce)
		}
	}
	if len(s.used) >= maxStates {
		return nil, errors.New("too many answers to input requests at once")
	}
	s.used[st.Nonce] = st.Expires
	return &st, nil
}

// digest tells arguments apart, however they are written.
func digest(raw json.RawMessage) string {
	var v any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if d.Decode(&v) == nil {
		if canonical, err := json.Marshal(v); err == nil {
			raw = canonical
		}
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}
