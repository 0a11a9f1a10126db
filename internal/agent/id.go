package agent

import (
	"crypto/rand"
	"encoding/hex"
)

// NewID makes `<prefix>-<uuid4>`.
func NewID(prefix string) string { return prefix + "-" + NewUUID() }

// NewUUID makes a random version 4 UUID in its text form. Its lowest seven bits
// are never all zero: other doors derive the ids of message variants from them
// (spec/rest.md section 2.2).
func NewUUID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	if b[15]&0x7f == 0 {
		b[15] |= 1
	}
	return FormatUUID(b)
}

// FormatUUID prints 16 bytes as 8-4-4-4-12 hex digits.
func FormatUUID(b [16]byte) string {
	var out [36]byte
	hex.Encode(out[:8], b[:4])
	out[8] = '-'
	hex.Encode(out[9:13], b[4:6])
	out[13] = '-'
	hex.Encode(out[14:18], b[6:8])
	out[18] = '-'
	hex.Encode(out[19:23], b[8:10])
	out[23] = '-'
	hex.Encode(out[24:], b[10:])
	return string(out[:])
}
