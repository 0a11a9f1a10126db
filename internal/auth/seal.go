package auth

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// KeyFile is the name of the key file in the state directory.
const KeyFile = "secret.key"

const (
	keySize = 32
	sealV1  = 1 // first byte of a sealed value: AES-256-GCM, 12 byte nonce
)

// ErrSealed is returned for a value that does not open: another key, another
// record, or damage.
var ErrSealed = errors.New("a stored secret does not open with this key (secret.key or MNEME_SECRET_KEY has changed)")

// A Sealer encrypts secrets. It is safe for concurrent use.
type Sealer struct{ aead cipher.AEAD }

// NewSealer makes a Sealer from a key of 32 bytes.
func NewSealer(key []byte) (*Sealer, error) {
	if len(key) != keySize {
		return nil, fmt.Errorf("the secret key has %d bytes, not %d", len(key), keySize)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	return &Sealer{aead: aead}, nil
}

// OpenSealer takes the key from env, the value of MNEME_SECRET_KEY, or else from
// the file secret.key in dir, which it makes at the first start.
func OpenSealer(dir, env string) (*Sealer, error) {
	if env = strings.TrimSpace(env); env != "" {
		key, err := parseKey(env)
		if err != nil {
			return nil, fmt.Errorf("MNEME_SECRET_KEY: %w", err)
		}
		return NewSealer(key)
	}
	path := filepath.Join(dir, KeyFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := createKey(dir, path); err != nil {
			return nil, fmt.Errorf("create %s: %w", path, err)
		}
		text, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, err
	}
	key, err := parseKey(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return NewSealer(key)
}

func parseKey(text string) ([]byte, error) {
	if key, err := hex.DecodeString(text); err == nil && len(key) == keySize {
		return key, nil
	}
	for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		if key, err := enc.DecodeString(text); err == nil && len(key) == keySize {
			return key, nil
		}
	}
	return nil, errors.New("not a key: 64 hex digits, or 32 bytes in base64, are expected (openssl rand -hex 32)")
}

// createKey writes a new key so that path holds either nothing or a whole key
// with mode 0600. A key that somebody else made meanwhile stays.
func createKey(dir, path string) error {
	key := make([]byte, keySize)
	rand.Read(key)                               // never fails
	tmp, err := os.CreateTemp(dir, KeyFile+".*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.WriteString(hex.EncodeToString(key) + "\n")
	if err == nil {
		err = tmp.Sync()
	}
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	if err := os.Link(tmp.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// Seal encrypts a secret that belongs to record: it opens for no other.
func (s *Sealer) Seal(plain []byte, record string) []byte {
	nonce := make([]byte, s.aead.NonceSize())
	rand.Read(nonce) // never fails
	out := append([]byte{sealV1}, nonce...)
	return s.aead.Seal(out, nonce, plain, []byte(record))
}

// Open decrypts what Seal made for the same record.
func (s *Sealer) Open(sealed []byte, record string) ([]byte, error) {
	n := s.aead.NonceSize()
	if len(sealed) < 1+n || sealed[0] != sealV1 {
		return nil, ErrSealed
	}
	plain, err := s.aead.Open(nil, sealed[1:1+n], sealed[1+n:], []byte(record))
	if err != nil {
		return nil, ErrSealed
	}
	return plain, nil
}
