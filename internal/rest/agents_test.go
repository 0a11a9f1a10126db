package rest_test

import "testing"

func TestSmoke(t *testing.T) {
	r := start(t, nil)
	t.Log(string(r.do("GET", "/v1/health/", nil).want(200).Body))
	id := r.agent(map[string]any{"name": "Ada", "tags": []string{"x"}, "secrets": map[string]string{"A": "b"}})
	t.Log(string(r.do("GET", "/v1/agents/"+id+"?include=agent.tags&include=agent.secrets", nil).Body))
	t.Log(string(r.do("GET", "/v1/agents/", nil).Body))
	c := r.conversation(id)
	t.Log(string(r.do("GET", "/v1/conversations/"+c, nil).Body))
	t.Log(string(r.do("POST", "/v1/conversations/"+c+"/recompile", nil).Body))
	t.Log(string(r.do("GET", "/openapi.json", nil).Body))
}
