package tidegate

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// ParseRetryAfter returns how long to wait after now, and whether the value is valid.
func ParseRetryAfter(value string, now time.Time) (time.Duration, bool) {
	value = strings.Trim(value, " \t")
	if value != "" && strings.Trim(value, "0123456789") == "" {
		seconds, err := strconv.ParseInt(value, 10, 64)
		if err != nil || seconds > int64(math.MaxInt64/time.Second) {
			return math.MaxInt64, true
		}
		return time.Duration(seconds) * time.Second, true
	}
	at, err := time.Parse(http.TimeFormat, value)
	if err != nil {
		return 0, false
	}
	if at.Before(now) {
		return 0, true
	}
	return at.Sub(now), true
}

// RetryBudget limits retries to a share of the calls, so that retries do not multiply an overload.
type RetryBudget struct {
	mutex                  sync.Mutex
	ratio, reserve, tokens float64
}

// NewRetryBudget returns a budget: each call adds ratio retries, of which reserve are kept.
func NewRetryBudget(ratio, reserve float64) *RetryBudget {
	return &RetryBudget{ratio: ratio, reserve: reserve, tokens: reserve}
}

func (b *RetryBudget) deposit() {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.tokens = math.Min(b.reserve, b.tokens+b.ratio)
}

func (b *RetryBudget) withdraw() bool {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

// RetryTransport is the transport of an http.Client that calls a server politely. Share one per
// server: its calls share a retry budget. NewRetryTransport sets the defaults.
//
// A call is repeated only if its method is idempotent, after 429, 502, 503, 504 or a network
// error, and never beyond the deadline of its context. A Retry-After above MaxWait is not waited
// for: the caller gets the response at once.
type RetryTransport struct {
	Next      http.RoundTripper
	Attempts  int
	Base, Cap time.Duration
	MaxWait   time.Duration
	Budget    *RetryBudget
	// RetryUnsafe also repeats methods that are not idempotent, such as POST.
	RetryUnsafe bool

	sleep  func(context.Context, time.Duration) error
	now    func() time.Time
	random func() float64
}

// NewRetryTransport returns a transport that repeats the calls of another one; nil stands for
// http.DefaultTransport.
func NewRetryTransport(next http.RoundTripper) *RetryTransport {
	if next == nil {
		next = http.DefaultTransport
	}
	return &RetryTransport{
		Next: next, Attempts: 4, Base: 100 * time.Millisecond, Cap: 10 * time.Second,
		MaxWait: time.Minute, Budget: NewRetryBudget(0.1, 10),
		sleep: sleep, now: time.Now, random: randomFraction,
	}
}

// RoundTrip sends a request until its response is final.
func (t *RetryTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	hasBody := request.Body != nil && request.Body != http.NoBody
	mayRepeat := (t.RetryUnsafe || isIdempotent(request.Method)) &&
		(!hasBody || request.GetBody != nil)
	t.Budget.deposit()
	attempted := request
	for attempt := 1; ; attempt++ {
		response, err := t.Next.RoundTrip(attempted)
		wait, isRetryable := t.waitBeforeRetry(attempt, response)
		if !mayRepeat || attempt >= t.Attempts || !isRetryable ||
			!t.fitsDeadline(request.Context(), wait) || !t.Budget.withdraw() {
			return response, err
		}
		if response != nil {
			// A connection can be reused only after its response was read.
			_, _ = io.CopyN(io.Discard, response.Body, 64*1024)
			response.Body.Close()
		}
		if err := t.sleep(request.Context(), wait); err != nil {
			return nil, err
		}
		attempted = request.Clone(request.Context())
		if hasBody {
			if attempted.Body, err = request.GetBody(); err != nil {
				return nil, err
			}
		}
	}
}

// waitBeforeRetry returns how long to wait after this attempt, or false if its response is final.
func (t *RetryTransport) waitBeforeRetry(
	attempt int, response *http.Response,
) (time.Duration, bool) {
	most := math.Min(float64(t.Cap), float64(t.Base)*math.Pow(2, float64(attempt-1)))
	// Full jitter: clients that were refused together do not retry together.
	jitter := time.Duration(t.random() * most)
	if response == nil {
		return jitter, true
	}
	switch response.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable,
		http.StatusGatewayTimeout:
	default:
		return 0, false
	}
	asked, isValid := ParseRetryAfter(response.Header.Get("Retry-After"), t.now())
	if !isValid {
		return jitter, true
	}
	return asked + jitter, asked <= t.MaxWait
}

func (t *RetryTransport) fitsDeadline(ctx context.Context, wait time.Duration) bool {
	deadline, exists := ctx.Deadline()
	return ctx.Err() == nil && (!exists || t.now().Add(wait).Before(deadline))
}

func isIdempotent(method string) bool {
	switch method {
	case "", "DELETE", "GET", "HEAD", "OPTIONS", "PUT", "TRACE":
		return true
	}
	return false
}

// randomFraction returns a number from 0 to below 1. Processes of Go before 1.20 would share the
// sequence of math/rand, and so retry at the same times.
func randomFraction() float64 {
	var bytes [8]byte
	_, _ = rand.Read(bytes[:])
	return float64(binary.BigEndian.Uint64(bytes[:])>>11) / (1 << 53)
}

func sleep(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
