package tidegate

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	factPrefix = "Tidegate-Fact-"
	// What the server accepts: 100 headers, and a head of 32 KiB.
	maxHeaders   = 100
	maxHeadBytes = 31 * 1024
	unavailable  = `{"error":"rate_limiter_unavailable","message":"The rate limiter is unavailable."}`
)

// Headers of one connection, and headers that describe the request to the server: only this
// middleware may write those. Connection may name further headers, but these are forwarded:
// otherwise a client could hide its API key from the server.
var notForwarded = []string{
	"Connection", "Content-Length", "Expect", "Forwarded", "Host", "Keep-Alive",
	"Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "X-Forwarded-For",
	"X-Forwarded-Host", "X-Forwarded-Method", "X-Forwarded-Uri", "X-Original-Method",
	"X-Original-Uri", "X-Original-Url", "X-Real-Ip",
}

var notReturned = []string{
	"Connection", "Date", "Keep-Alive", "Transfer-Encoding", "X-Ratelimit-Decision",
}

// Options of the middleware. The zero value of a field is its default.
type Options struct {
	// URL of Tidegate's HTTP API; by default http://127.0.0.1:8081.
	URL string
	// Deadline for an answer; by default 50 ms.
	Deadline time.Duration
	// OnFail is what happens to requests while the server does not answer: "allow" (the
	// default) or "deny", which answers 503.
	OnFail string
	// Facts returns what the application knows about a request, such as its user_id.
	Facts func(*http.Request) map[string]string
	// Skip returns whether a request passes without a decision.
	Skip func(*http.Request) bool
	// DropHeaders lists headers of the client that the server must not see.
	DropHeaders []string
	// Logf writes a line when the server stops answering or answers again; by default log.Printf.
	Logf func(format string, values ...any)
}

type forwardAuth struct {
	options Options
	url     string
	server  http.Transport
	dropped map[string]bool
	breaker breaker
}

// verdict is what to do with a request: without a status, the application handles it.
type verdict struct {
	status int
	header http.Header
	body   []byte
}

// Middleware returns a function that puts the rate limits of a Tidegate server before a handler.
func Middleware(options Options) (func(http.Handler) http.Handler, error) {
	auth, err := newForwardAuth(options)
	if err != nil {
		return nil, err
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if options.Skip != nil && options.Skip(r) {
				next.ServeHTTP(w, r)
				return
			}
			decided := auth.decide(r)
			for name, values := range decided.header {
				w.Header()[name] = values
			}
			if decided.status == 0 {
				next.ServeHTTP(w, r)
				return
			}
			w.WriteHeader(decided.status)
			_, _ = w.Write(decided.body)
		})
	}, nil
}

func newForwardAuth(options Options) (*forwardAuth, error) {
	if options.URL == "" {
		options.URL = "http://127.0.0.1:8081"
	}
	if options.Deadline == 0 {
		options.Deadline = 50 * time.Millisecond
	}
	if options.OnFail == "" {
		options.OnFail = "allow"
	}
	if options.Logf == nil {
		options.Logf = log.Printf
	}
	server, err := url.Parse(options.URL)
	if err != nil || server.Scheme != "http" || server.Host == "" ||
		strings.Trim(server.Path, "/") != "" || server.RawQuery != "" {
		const advice = "URL: write http://HOST:PORT of Tidegate's HTTP API, not %q"
		return nil, fmt.Errorf(advice, options.URL)
	}
	if options.OnFail != "allow" && options.OnFail != "deny" {
		return nil, fmt.Errorf("OnFail: write \"allow\" or \"deny\", not %q", options.OnFail)
	}
	if options.Deadline < 0 {
		return nil, fmt.Errorf("Deadline: write a duration above 0, not %v", options.Deadline)
	}
	auth := &forwardAuth{
		options: options,
		url:     "http://" + server.Host + "/v1/forward-auth",
		// Without a proxy from the environment. The server closes idle connections later.
		server: http.Transport{
			MaxIdleConnsPerHost: 32,
			IdleConnTimeout:     90 * time.Second,
			DisableCompression:  true,
		},
		dropped: map[string]bool{},
		breaker: breaker{
			server: server.Host, onFail: options.OnFail, logf: options.Logf, now: time.Now,
		},
	}
	for _, names := range [][]string{notForwarded, options.DropHeaders} {
		for _, name := range names {
			auth.dropped[http.CanonicalHeaderKey(name)] = true
		}
	}
	return auth, nil
}

func (a *forwardAuth) decide(r *http.Request) verdict {
	header, refused := a.describe(r)
	if refused != 0 {
		return refuse(refused, "")
	}
	if a.breaker.admits() {
		decided, err := a.ask(header)
		if err == nil {
			a.breaker.recordSuccess()
			return decided
		}
		a.breaker.recordFailure(err)
	}
	if a.options.OnFail == "deny" {
		return refuse(http.StatusServiceUnavailable, unavailable)
	}
	return verdict{}
}

// refuse returns a refusal that does not come from the server.
func refuse(status int, body string) verdict {
	header := http.Header{}
	header.Set("Cache-Control", "no-store")
	if body != "" {
		header.Set("Content-Type", "application/json")
	}
	header.Set("Content-Length", strconv.Itoa(len(body)))
	return verdict{status, header, []byte(body)}
}

// describe returns the headers for the server, or the status of the refusal of a request that the
// server cannot read.
func (a *forwardAuth) describe(r *http.Request) (http.Header, int) {
	header := http.Header{"User-Agent": nil} // no default value
	for name, values := range r.Header {
		if !a.dropped[name] && !strings.HasPrefix(name, factPrefix) {
			header[name] = values
		}
	}
	header.Set("X-Forwarded-Method", r.Method)
	header.Set("X-Forwarded-Uri", encodeNonASCII(r.RequestURI))
	header.Set("X-Forwarded-Host", r.Host)
	hops := r.Header["X-Forwarded-For"]
	if peer, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		hops = append(hops[:len(hops):len(hops)], peer)
	}
	if len(hops) > 0 {
		header.Set("X-Forwarded-For", strings.Join(hops, ", "))
	}
	if a.options.Facts != nil {
		for name, value := range a.options.Facts(r) {
			name = factPrefix + strings.ReplaceAll(name, "_", "-")
			if strings.IndexFunc(name, isNoName) >= 0 || strings.IndexFunc(value, isControl) >= 0 {
				return nil, http.StatusBadRequest
			}
			header.Set(name, value)
		}
	}
	// The server would close the connection, which must not look like an outage.
	count, size := 1, 100
	for name, values := range header {
		for _, value := range values {
			count, size = count+1, size+len(name)+len(value)+4
		}
	}
	if count > maxHeaders || size > maxHeadBytes {
		return nil, http.StatusRequestHeaderFieldsTooLarge
	}
	return header, 0
}

func isControl(char rune) bool { return char < ' ' || char == 0x7f }

func isNoName(char rune) bool {
	isLetter := char >= 'a' && char <= 'z' || char >= 'A' && char <= 'Z'
	return !isLetter && char != '-' && !(char >= '0' && char <= '9')
}

// encodeNonASCII writes bytes outside ASCII as %XX, and leaves the rest as the client sent it.
func encodeNonASCII(target string) string {
	var encoded strings.Builder
	for i := 0; i < len(target); i++ {
		if target[i] < 0x80 {
			encoded.WriteByte(target[i])
		} else {
			fmt.Fprintf(&encoded, "%%%02X", target[i])
		}
	}
	return encoded.String()
}

// ask returns the server's decision, or an error if it does not answer with one in time.
func (a *forwardAuth) ask(header http.Header) (verdict, error) {
	// Not the context of the request: a client that disconnects is not an outage.
	ctx, cancel := context.WithTimeout(context.Background(), a.options.Deadline)
	defer cancel()
	question, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url, nil)
	if err != nil {
		return verdict{}, err
	}
	question.Header = header
	response, err := a.server.RoundTrip(question)
	if err != nil {
		return verdict{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return verdict{}, err
	}
	return readVerdict(response.StatusCode, response.Header, body)
}

func readVerdict(status int, header http.Header, body []byte) (verdict, error) {
	decision := header.Get("X-Ratelimit-Decision")
	for _, name := range notReturned {
		header.Del(name)
	}
	if decision == "allow" {
		limits := http.Header{}
		for name, values := range header {
			if strings.HasPrefix(name, "X-Ratelimit-") || strings.HasPrefix(name, "Ratelimit") ||
				name == "Access-Control-Expose-Headers" {
				limits[name] = values
			}
		}
		return verdict{header: limits}, nil
	}
	// Without a decision: the request is ambiguous, for instance has two API keys (400), or is too
	// long (431).
	if decision == "deny" || status == 400 || status == 431 {
		return verdict{status, header, body}, nil
	}
	return verdict{}, fmt.Errorf("it answers with status %d: %.300s", status, body)
}
