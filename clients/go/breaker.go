package tidegate

import (
	"sync"
	"time"
)

const (
	breakerFailures = 3
	breakerPause    = time.Second
)

// breaker stops asking a server that is down: after three failures, one request per second asks.
type breaker struct {
	server string
	onFail string
	logf   func(format string, values ...any)
	now    func() time.Time

	mutex    sync.Mutex
	failures int
	askAt    time.Time // zero while the server answers
}

// admits returns whether a request may ask the server.
func (b *breaker) admits() bool {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if b.askAt.IsZero() {
		return true
	}
	if b.now().Before(b.askAt) {
		return false
	}
	b.askAt = b.now().Add(breakerPause)
	return true
}

func (b *breaker) recordSuccess() {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if !b.askAt.IsZero() {
		b.logf("tidegate at %s answers again; its limits apply", b.server)
	}
	b.failures, b.askAt = 0, time.Time{}
}

func (b *breaker) recordFailure(err error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.failures++
	if !b.askAt.IsZero() || b.failures < breakerFailures {
		return
	}
	b.askAt = b.now().Add(breakerPause)
	action := "pass without limits"
	if b.onFail == "deny" {
		action = "get 503"
	}
	b.logf("tidegate at %s does not answer (%v); until it does, requests %s", b.server, err, action)
}
