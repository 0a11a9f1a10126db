// Command mockllm is a scripted stand-in for a language-model provider. It
// speaks the OpenAI chat, responses and embeddings APIs and the Anthropic
// messages API, and answers according to directives in the last user text.
// The directive language is described in README.md.
//
// A request is read into one normalised form (request.go), its script decides
// what the answer does (script.go), and a format renders that in the words of
// the API that was asked (chat.go, responses.go, anthropic.go). server.go has
// the routes.
package main

import (
	"flag"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:46001", "address to listen on; port 0 takes a free one")
	models := flag.String("models", "mock-1,mock-2", "comma-separated model ids")
	logFile := flag.String("log", "", "append each completion request to this file as one JSON line")
	flag.Parse()

	s := &server{models: strings.Split(*models, ",")}
	if *logFile != "" {
		f, err := os.OpenFile(*logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			log.Fatal(err)
		}
		s.requests = f
	}
	ln, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("mock model on http://%s/v1", ln.Addr())
	log.Fatal(http.Serve(ln, s.routes()))
}
