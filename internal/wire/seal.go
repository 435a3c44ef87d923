package wire

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"time"
)

// A sealer turns what a parked call must remember of its client into text that
// only this server can read or make: the client carries it, and may be anybody.
type sealer struct {
	aead cipher.AEAD
}

// sealPrefix marks the requestStates of this package, so that those of the
// handler can be told apart.
const sealPrefix = "pb1."

// A ticket is what a sealed requestState says.
type ticket struct {
	park      parkID            // the parked call
	principal [sha256.Size]byte // who may resume it
	request   [sha256.Size]byte // the digest of the request that was parked
	expires   time.Time
}

const ticketSize = len(parkID{}) + 2*sha256.Size + 8

func newSealer() (*sealer, error) {
	key := make([]byte, 32)
	rand.Read(key) // never fails
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, err
	}
	return &sealer{aead}, nil
}

func (s *sealer) seal(t ticket) string {
	plain := make([]byte, 0, ticketSize)
	plain = append(plain, t.park[:]...)
	plain = append(plain, t.principal[:]...)
	plain = append(plain, t.request[:]...)
	plain = binary.BigEndian.AppendUint64(plain, uint64(t.expires.UnixNano()))
	return sealPrefix + base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, plain, []byte(sealPrefix)))
}

// open reports false for whatever seal did not make.
func (s *sealer) open(state string) (ticket, bool) {
	var t ticket
	if len(state) < len(sealPrefix) || state[:len(sealPrefix)] != sealPrefix {
		return t, false
	}
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(state[len(sealPrefix):])
	if err != nil {
		return t, false
	}
	plain, err := s.aead.Open(nil, nil, sealed, []byte(sealPrefix))
	if err != nil || len(plain) != ticketSize {
		return t, false
	}
	plain = plain[copy(t.park[:], plain):]
	plain = plain[copy(t.principal[:], plain):]
	plain = plain[copy(t.request[:], plain):]
	t.expires = time.Unix(0, int64(binary.BigEndian.Uint64(plain)))
	return t, true
}
