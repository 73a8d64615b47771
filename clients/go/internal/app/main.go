// The application of the conformance tests on net/http; see ../../../README.md.
package main

import (
	"encoding/json"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"time"

	"tidegate"
)

type settings struct {
	Tidegate  string
	Listeners []struct {
		Port       int
		OnFail     string `json:"on_fail"`
		DeadlineMS int    `json:"deadline_ms"`
	}
}

func main() {
	var given settings
	if err := json.Unmarshal([]byte(os.Args[1]), &given); err != nil {
		log.Fatal(err)
	}
	failed := make(chan error)
	for _, listener := range given.Listeners {
		limit, err := tidegate.Middleware(tidegate.Options{
			URL:      given.Tidegate,
			Deadline: time.Duration(listener.DeadlineMS) * time.Millisecond,
			OnFail:   listener.OnFail,
			Facts:    findFacts,
			Skip:     func(r *http.Request) bool { return r.URL.Path == "/skipped" },
		})
		if err != nil {
			log.Fatal(err)
		}
		address := "127.0.0.1:" + strconv.Itoa(listener.Port)
		go func() { failed <- http.ListenAndServe(address, limit(http.HandlerFunc(handle))) }()
	}
	log.Fatal(<-failed)
}

func handle(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("X-Handled", "yes")
	_, _ = io.WriteString(w, "handled")
}

func findFacts(r *http.Request) map[string]string {
	facts := map[string]string{}
	for fact, name := range map[string]string{"user_id": "X-Session", "cost": "X-Points"} {
		if value := r.Header.Get(name); value != "" {
			facts[fact] = value
		}
	}
	return facts
}
