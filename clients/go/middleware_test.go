package tidegate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestBreakerOpensAfterThreeFailuresAndAsksOncePerSecond(t *testing.T) {
	now, lines := start, []string(nil)
	logf := func(format string, values ...any) {
		lines = append(lines, fmt.Sprintf(format, values...))
	}
	b := breaker{server: "t:1", onFail: "allow", logf: logf, now: func() time.Time { return now }}
	fail := func() { b.recordFailure(errors.New("refused")) }
	fail()
	fail()
	b.recordSuccess()
	fail()
	fail()
	expect(t, "after two", b.admits(), true)
	fail()
	expect(t, "after three", b.admits(), false)
	fail()
	now = now.Add(time.Second)
	expect(t, "after a second", []bool{b.admits(), b.admits()}, []bool{true, false})
	now = now.Add(time.Second)
	expect(t, "after two seconds", b.admits(), true)
	b.recordSuccess()
	expect(t, "after success", b.admits(), true)
	expect(t, "lines", lines, []string{
		"tidegate at t:1 does not answer (refused); until it does, requests pass without limits",
		"tidegate at t:1 answers again; its limits apply",
	})
}

func describe(t *testing.T, options Options, target string, header http.Header) (http.Header, int) {
	t.Helper()
	auth, err := newForwardAuth(options)
	if err != nil {
		t.Fatal(err)
	}
	request := httptest.NewRequest("GET", "/", nil)
	request.RequestURI, request.Header = target, header
	return auth.describe(request)
}

func TestFactsReplaceHeadersOfTheClient(t *testing.T) {
	sent := http.Header{"Tidegate-Fact-User-Id": {"forged"}, "Tidegate-Fact-Tier": {"paid"}}
	options := Options{Facts: func(*http.Request) map[string]string {
		return map[string]string{"user_id": "zoé"}
	}}
	header, _ := describe(t, options, "/", sent)
	expect(t, "user", header["Tidegate-Fact-User-Id"], []string{"zoé"})
	expect(t, "tier", header["Tidegate-Fact-Tier"], []string(nil))
	expect(t, "request", sent.Get("Tidegate-Fact-User-Id"), "forged")
}

func TestInvalidFactsAreBadRequests(t *testing.T) {
	for name, value := range map[string]string{"a": "b\r\nc: d", "b": "a\x00", "a b": "c"} {
		options := Options{Facts: func(*http.Request) map[string]string {
			return map[string]string{name: value}
		}}
		_, status := describe(t, options, "/", http.Header{})
		expect(t, name, status, 400)
	}
}

func TestNonASCIITargetIsEncoded(t *testing.T) {
	header, _ := describe(t, Options{}, "/é?%zz=\"<", http.Header{})
	expect(t, "target", header.Get("X-Forwarded-Uri"), "/%C3%A9?%zz=\"<")
}

func TestDroppedHeadersAreNotSent(t *testing.T) {
	sent := http.Header{"X-User": {"ana"}, "X-Other": {"kept"}}
	header, _ := describe(t, Options{DropHeaders: []string{"x-user"}}, "/", sent)
	expect(t, "user", header.Get("X-User"), "")
	expect(t, "other", header.Get("X-Other"), "kept")
}

func TestTooLongHeadsAreRefused(t *testing.T) {
	for count, expected := range map[int]int{90: 0, 97: 431} {
		header := http.Header{"X": strings.Split(strings.Repeat("a,", count-1)+"a", ",")}
		_, status := describe(t, Options{}, "/", header)
		expect(t, "status", status, expected)
	}
	_, status := describe(t, Options{}, "/", http.Header{"X": {strings.Repeat("a", 32_000)}})
	expect(t, "status", status, 431)
}

func TestInvalidOptionsAreErrors(t *testing.T) {
	for _, options := range []Options{
		{URL: "https://a"}, {URL: "http://a/b"}, {OnFail: "open"}, {Deadline: -1},
	} {
		if _, err := Middleware(options); err == nil {
			t.Error(options)
		}
	}
}

func TestDisconnectedClientIsNoFailure(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Ratelimit-Decision", "allow")
		w.Header().Set("X-Ratelimit-Limit", "3")
	}))
	defer server.Close()
	auth, err := newForwardAuth(Options{URL: server.URL, Deadline: time.Minute, OnFail: "deny"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	decided := auth.decide(httptest.NewRequest("GET", "/", nil).WithContext(ctx))
	expect(t, "status", decided.status, 0)
	expect(t, "header", decided.header, http.Header{"X-Ratelimit-Limit": {"3"}})
}

func TestAnswerWithoutDecisionIsAFailure(t *testing.T) {
	for _, status := range []int{200, 302, 403, 404, 500, 503} {
		if _, err := readVerdict(status, http.Header{}, nil); err == nil {
			t.Error(status)
		}
	}
	bad, err := readVerdict(400, http.Header{}, nil)
	expect(t, "error", err, nil)
	expect(t, "status", bad.status, 400)
}
