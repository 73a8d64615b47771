// Package tidegate limits the requests of a net/http server by the rules of a Tidegate server
// (Middleware), and repeats refused calls of a net/http client politely (RetryTransport).
package tidegate
