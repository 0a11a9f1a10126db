package memory

import (
	"container/list"
	"crypto/sha256"
	"math"
	"sync"
)

// vectorBudget bounds the vectors of all agents, in bytes.
const vectorBudget = 128 << 20

// vectorCost is what a vector costs besides its numbers, in bytes.
const vectorCost = 200

// A vectorKey names a text by its digest, for one model. So a text is embedded
// once, in whichever file and memory it stands, and never compared with vectors
// of another model.
type vectorKey struct {
	model  string
	digest [16]byte
}

func keyOf(model, text string) vectorKey {
	sum := sha256.Sum256([]byte(text))
	return vectorKey{model: model, digest: [16]byte(sum[:16])}
}

// The vectors used last, of length 1. They live in memory only, beside the
// repositories: a search writes nothing.
type vectors struct {
	budget int

	mu    sync.Mutex // guards what follows
	byKey map[vectorKey]*list.Element
	order *list.List // of *vector, most recent first
	used  int
}

type vector struct {
	key    vectorKey
	values []float32
}

func newVectors(budget int) *vectors {
	return &vectors{budget: budget, byKey: map[vectorKey]*list.Element{}, order: list.New()}
}

// get finds the vectors of keys; nil where there is none.
func (v *vectors) get(keys []vectorKey) [][]float32 {
	found := make([][]float32, len(keys))
	v.mu.Lock()
	defer v.mu.Unlock()
	for i, k := range keys {
		if e := v.byKey[k]; e != nil {
			v.order.MoveToFront(e)
			found[i] = e.Value.(*vector).values
		}
	}
	return found
}

// put adds a vector, which it brings to length 1.
func (v *vectors) put(key vectorKey, values []float32) {
	values = unit(values)
	v.mu.Lock()
	defer v.mu.Unlock()
	if e := v.byKey[key]; e != nil {
		v.remove(e)
	}
	v.byKey[key] = v.order.PushFront(&vector{key, values})
	v.used += vectorCost + 4*len(values)
	for v.used > v.budget && v.order.Len() > 1 {
		v.remove(v.order.Back())
	}
}

// drop forgets vectors.
func (v *vectors) drop(keys []vectorKey) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, k := range keys {
		if e := v.byKey[k]; e != nil {
			v.remove(e)
		}
	}
}

func (v *vectors) remove(e *list.Element) {
	old := v.order.Remove(e).(*vector)
	delete(v.byKey, old.key)
	v.used -= vectorCost + 4*len(old.values)
}

// unit is a copy of a vector with length 1; zeros stay zeros.
func unit(values []float32) []float32 {
	sum := 0.0
	for _, x := range values {
		sum += float64(x) * float64(x)
	}
	out := make([]float32, len(values))
	if sum > 0 && !math.IsInf(sum, 0) && !math.IsNaN(sum) {
		scale := float32(1 / math.Sqrt(sum))
		for i, x := range values {
			out[i] = x * scale
		}
	}
	return out
}

// dot is the cosine of two vectors of length 1 with as many numbers.
func dot(a, b []float32) float64 {
	var s0, s1, s2, s3 float32
	b = b[:len(a)]
	i := 0
	for ; i+4 <= len(a); i += 4 {
		s0 += a[i] * b[i]
		s1 += a[i+1] * b[i+1]
		s2 += a[i+2] * b[i+2]
		s3 += a[i+3] * b[i+3]
	}
	for ; i < len(a); i++ {
		s0 += a[i] * b[i]
	}
	return float64(s0 + s1 + s2 + s3)
}
