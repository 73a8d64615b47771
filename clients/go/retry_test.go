package tidegate

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

type retryAfterValues struct {
	Now   time.Time
	Cases []struct {
		Value   string
		Seconds *int
	}
	AboveAnyCeiling []string `json:"above_any_ceiling"`
}

func readRetryAfterValues(t *testing.T) retryAfterValues {
	var values retryAfterValues
	text, err := os.ReadFile("../retry-after.json")
	if err == nil {
		err = json.Unmarshal(text, &values)
	}
	if err != nil || len(values.Cases) < 20 || len(values.AboveAnyCeiling) == 0 {
		t.Fatal(err, values)
	}
	return values
}

var start = time.Date(2026, 11, 19, 12, 0, 0, 0, time.UTC)

// fakeServer gives these replies in turn; the last one stays. Sleeping moves the clock.
type fakeServer struct {
	replies   []any // a *http.Response or an error
	calls     int
	bodies    []string
	waits     []time.Duration
	now       time.Time
	transport *RetryTransport
}

func newFakeServer(jitter float64, replies ...any) *fakeServer {
	s := &fakeServer{replies: replies, now: start}
	s.transport = NewRetryTransport(s)
	s.transport.random = func() float64 { return jitter }
	s.transport.now = func() time.Time { return s.now }
	s.transport.sleep = func(_ context.Context, wait time.Duration) error {
		s.waits = append(s.waits, wait)
		s.now = s.now.Add(wait)
		return nil
	}
	return s
}

func (s *fakeServer) RoundTrip(request *http.Request) (*http.Response, error) {
	s.calls++
	if request.Body != nil {
		body, _ := io.ReadAll(request.Body)
		s.bodies = append(s.bodies, string(body))
	}
	reply := s.replies[0]
	if len(s.replies) > 1 {
		s.replies = s.replies[1:]
	}
	if err, isError := reply.(error); isError {
		return nil, err
	}
	return reply.(*http.Response), nil
}

func (s *fakeServer) send(t *testing.T, method, body string, ctx context.Context) (int, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, method, "http://a/", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := s.transport.RoundTrip(request)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, nil
}

func (s *fakeServer) get(t *testing.T) int {
	t.Helper()
	status, err := s.send(t, "GET", "", context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return status
}

func reply(status int, retryAfter string) *http.Response {
	header := http.Header{}
	if retryAfter != "" {
		header.Set("Retry-After", retryAfter)
	}
	return &http.Response{StatusCode: status, Header: header, Body: http.NoBody}
}

func expect(t *testing.T, what string, actual, expected any) {
	t.Helper()
	if !reflect.DeepEqual(actual, expected) {
		t.Errorf("%s: %v, expected %v", what, actual, expected)
	}
}

func seconds(values ...float64) []time.Duration {
	var durations []time.Duration
	for _, value := range values {
		durations = append(durations, time.Duration(value*float64(time.Second)))
	}
	return durations
}

func TestRetryAfterValuesAreParsedAsListed(t *testing.T) {
	values := readRetryAfterValues(t)
	for _, c := range values.Cases {
		wait, isValid := ParseRetryAfter(c.Value, values.Now)
		expect(t, c.Value, isValid, c.Seconds != nil)
		if c.Seconds != nil {
			expect(t, c.Value, wait, time.Duration(*c.Seconds)*time.Second)
		}
	}
}

func TestTransportWaitsAsLongAsAskedPlusJitter(t *testing.T) {
	for _, value := range []string{"30", "Thu, 19 Nov 2026 12:00:30 GMT"} {
		s := newFakeServer(0.5, reply(429, value), reply(200, ""))
		expect(t, value, s.get(t), 200)
		expect(t, value, s.waits, seconds(30.05))
	}
}

func TestTransportBacksOffExponentiallyUpToTheCap(t *testing.T) {
	s := newFakeServer(1, reply(503, ""))
	s.transport.Attempts, s.transport.Base, s.transport.Cap = 6, time.Second, 5*time.Second
	expect(t, "status", s.get(t), 503)
	expect(t, "waits", s.waits, seconds(1, 2, 4, 5, 5))
}

func TestInvalidRetryAfterBacksOff(t *testing.T) {
	s := newFakeServer(1, reply(429, "-1"), reply(200, ""))
	expect(t, "status", s.get(t), 200)
	expect(t, "waits", s.waits, seconds(0.1))
}

func TestRetryAfterAboveTheCeilingIsReturnedAtOnce(t *testing.T) {
	for _, value := range append(readRetryAfterValues(t).AboveAnyCeiling, "61") {
		s := newFakeServer(1, reply(429, value))
		expect(t, value, s.get(t), 429)
		expect(t, value, s.calls, 1)
	}
}

func TestDeadlineOfTheContextIsNotExceeded(t *testing.T) {
	// The context's timer runs in real time, the transport's clock does not.
	ctx, cancel := context.WithDeadline(context.Background(), time.Now().Add(time.Hour))
	defer cancel()
	deadline, _ := ctx.Deadline()
	s := newFakeServer(0, reply(429, "20"))
	s.now = deadline.Add(-50 * time.Second)
	status, err := s.send(t, "GET", "", ctx)
	expect(t, "status", status, 429)
	expect(t, "error", err, nil)
	expect(t, "waits", s.waits, seconds(20, 20))
}

func TestCancelledCallIsNotRepeated(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s := newFakeServer(0, ctx.Err())
	_, err := s.send(t, "GET", "", ctx)
	expect(t, "error", err, context.Canceled)
	expect(t, "calls", s.calls, 1)
}

func TestUnsafeMethodIsRepeatedOnlyIfThatIsAllowed(t *testing.T) {
	careful := newFakeServer(0, reply(429, "1"))
	status, _ := careful.send(t, "POST", "data", context.Background())
	expect(t, "status", status, 429)
	expect(t, "calls", careful.calls, 1)
	bold := newFakeServer(0, reply(429, "1"))
	bold.transport.RetryUnsafe = true
	_, _ = bold.send(t, "POST", "data", context.Background())
	expect(t, "bodies", bold.bodies, []string{"data", "data", "data", "data"})
}

func TestBodyThatCannotBeReplayedIsSentOnce(t *testing.T) {
	s := newFakeServer(0, reply(429, "1"))
	request, err := http.NewRequest("PUT", "http://a/", io.NopCloser(strings.NewReader("data")))
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.transport.RoundTrip(request)
	expect(t, "error", err, nil)
	expect(t, "bodies", s.bodies, []string{"data"})
}

func TestFinalStatusesAreNotRepeated(t *testing.T) {
	for _, status := range []int{200, 301, 400, 404, 500, 501} {
		s := newFakeServer(0, reply(status, "1"))
		expect(t, "status", s.get(t), status)
		expect(t, "calls", s.calls, 1)
	}
}

func TestNetworkErrorIsRepeatedThenReturned(t *testing.T) {
	reset := errors.New("connection reset")
	s := newFakeServer(0, reset)
	s.transport.Attempts = 2
	_, err := s.send(t, "GET", "", context.Background())
	expect(t, "error", err, reset)
	expect(t, "calls", s.calls, 2)
}

func TestBudgetLimitsRetriesOfAllCalls(t *testing.T) {
	s := newFakeServer(0, reply(503, ""))
	s.transport.Attempts = 2
	for i := 0; i < 1000; i++ {
		s.get(t)
	}
	// The reserve, and a tenth of the calls.
	if retries := s.calls - 1000; retries < 105 || retries > 111 {
		t.Error(retries)
	}
}

func TestRandomFractionIsBelowOneAndVaries(t *testing.T) {
	low, high := 1.0, 0.0
	for i := 0; i < 1000; i++ {
		fraction := randomFraction()
		low, high = math.Min(low, fraction), math.Max(high, fraction)
	}
	if low < 0 || low > 0.1 || high < 0.9 || high >= 1 {
		t.Error(low, high)
	}
}
